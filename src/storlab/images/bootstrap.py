"""A Debian in a folder for as long as a script needs one: ``mmdebstrap``, so that the host stays as it is.

As root, all of it runs in mount and process namespaces of its own: however it ends, no mount and no process is left.
As another user, mmdebstrap makes a user namespace, and takes its folder away when it is told to end.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storlab.images import commands, recipe
from storlab.images.apt import Apt

PROGRAMS = ("mmdebstrap", "apt-get", "dpkg-deb", "setpriv", "unshare", "tar")
EXCHANGE = "/tmp/storlab"  # in the Debian: where files are handed in and out

# What mmdebstrap says that it does, in a user's words.
_STEPS = {
    "I: running apt-get update": "reading the mirror's lists",
    "I: downloading packages": "downloading packages",
    "I: extracting archives": "unpacking the base",
    "I: installing essential packages": "installing the base",
    "I: installing remaining packages": "installing packages",
}
_SAYS = "storlab: "  # what a script of ours prints behind this is progress


@dataclass(frozen=True)
class Bootstrap:
    """``fetched``: files to hand in; ``outside``: a shell script that gets the folder as $1; ``inside``: one in it."""

    packages: Sequence[str]
    apt: Apt
    mirror: str
    archives: Path  # downloaded packages are kept here
    fetched: Sequence[Path] = ()
    outside: Sequence[str] = ()
    inside: Sequence[str] = ()
    results: Mapping[str, Path] = field(default_factory=dict)  # name in EXCHANGE → where it goes

    def command(self) -> list[str]:
        """mmdebstrap's, but for its mode."""
        quoted = shlex.quote
        archives = quoted(str(self.archives))
        hand_in = " ".join(quoted(str(path)) for path in self.fetched)
        argv = ["mmdebstrap", "--variant=minbase", "--format=null"]
        argv += [f"--architectures={recipe.ARCHITECTURE}", f"--aptopt={self.apt.acquire}"]
        argv += ['--aptopt=APT::Install-Recommends "false"', f"--include={','.join(self.packages)}"]
        argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.NOT_UNPACKED]
        argv += ["--dpkgopt=force-unsafe-io", "--skip=essential/unlink,download/empty,check/empty"]
        argv += ['--setup-hook=mkdir -p "$1/var/cache/apt/archives" "$1/etc/apt/preferences.d"']
        argv += [f"--setup-hook=upload {quoted(str(self.apt.folder / 'preferences'))} /etc/apt/preferences.d/storlab"]
        argv += [f"--setup-hook=sync-in {archives} /var/cache/apt/archives"]
        argv += [f'--customize-hook=mkdir -m 0777 "$1{EXCHANGE}"']
        argv += [f"--customize-hook=sync-out /var/cache/apt/archives {archives}"]
        argv += [f"--customize-hook=copy-in {hand_in} {EXCHANGE}"] if hand_in else []
        argv += [f"--customize-hook={script}" for script in self.outside]
        argv += [f"--chrooted-customize-hook={script}" for script in self.inside]
        argv += [
            f"--customize-hook=download {EXCHANGE}/{name} {quoted(str(path))}" for name, path in self.results.items()
        ]
        return [*argv, recipe.SUITE, "-", *recipe.sources(self.mirror)]

    async def run(self, work: Path, log: Path, notify: Callable[[str], None]) -> None:
        """Build it in ``work``, run the scripts, fetch the results, remove it. Raises ``ImageError``."""
        await run_apart(self.command(), work, log, _notifying(notify))


async def run_apart(
    argv: Sequence[str], work: Path, log: Path, seen: Callable[[str], None] = lambda line: None
) -> None:
    """Run mmdebstrap so that it leaves nothing behind; ``seen`` gets what it prints. Raises ``ImageError``."""
    environment = {"SOURCE_DATE_EPOCH": str(recipe.TIMESTAMP)}
    if os.geteuid() == 0:
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        whole = ["setpriv", "--pdeathsig", "KILL", "--", *alone, argv[0], "--mode=root", *argv[1:]]
        (work / "tmp").mkdir(exist_ok=True)
        environment["TMPDIR"] = str(work / "tmp")
    else:
        # In TMPDIR or /tmp: the users of its namespace may not be able to reach our cache.
        whole = ["setpriv", "--pdeathsig", "TERM", "--", argv[0], "--mode=unshare", *argv[1:]]
    await commands.follow(whole, log, seen, environment)


def _notifying(notify: Callable[[str], None]) -> Callable[[str], None]:
    def seen(line: str) -> None:
        if line.startswith(_SAYS):
            notify(line.removeprefix(_SAYS))
        for begin, meaning in _STEPS.items():
            if line.startswith(begin):
                notify(meaning)

    return seen


def erofs_command(target: str, folder: str, key: str, root_owned: bool = False) -> list[str]:
    """``mkfs.erofs``: equal contents give equal bytes. ``key``: hexadecimal, becomes the file system's UUID."""
    digits = (key * 2)[:32].ljust(32, "0")
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    argv = ["mkfs.erofs", "--quiet", "-zlz4hc", f"-T{recipe.TIMESTAMP}", f"-U{uuid}"]
    return [*argv, *(["--all-root"] if root_owned else []), target, folder]
