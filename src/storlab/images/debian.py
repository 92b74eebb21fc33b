"""Debian's packages, without a change to this machine: a private apt, and a Debian in a folder for as long as a script
needs one.

Of apt, its lists and downloads lie in our cache, its sources are the recipe's, the host's are not touched. It works
as any user. Proxies and the like are taken over from the host's configuration: apt.conf(5). What apt prints about
packages is read by deb-control(5).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from pathlib import Path

from storlab.base.errors import ImageError
from storlab.images import commands, recipe

Stanza = Mapping[str, str]


def parse_stanzas(text: str) -> list[Stanza]:
    """Paragraphs of ``Field: value`` lines; a line that begins with a blank continues the field before."""
    stanzas: list[Stanza] = []
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", text):
        fields: dict[str, str] = {}
        field = ""
        for line in paragraph.split("\n"):
            if line[:1] in (" ", "\t") and field:
                fields[field] += "\n" + line.strip()
            elif ":" in line:
                field, _, value = line.partition(":")
                field = field.strip()
                fields[field] = value.strip()
        if fields:
            stanzas.append(fields)
    return stanzas


def compare_versions(one: str, other: str) -> int:
    """Negative where ``one`` is older, positive where it is newer, 0 where they are equal, as dpkg itself says."""
    for relation, sign in (("lt", -1), ("gt", 1)):
        asked = subprocess.run(["dpkg", "--compare-versions", one, relation, other], stderr=subprocess.DEVNULL)
        if asked.returncode == 0:
            return sign
    return 0


def newest(stanzas: Iterable[Stanza], names: re.Pattern[str]) -> Stanza | None:
    found = [stanza for stanza in stanzas if names.fullmatch(stanza.get("Package", "")) and "Version" in stanza]
    return max(found, key=lambda stanza: cmp_to_key(compare_versions)(stanza["Version"]), default=None)


_OURS = re.compile(r"Acquire::(?:https?|ftp|socks|Check-Date|Check-Valid-Until|ForceIPv[46]|Max-FutureTime)\b.*")


def taken_over(dump: str) -> str:
    """Of ``apt-config dump``, what concerns reaching a mirror; and a little patience."""
    lines = [line for line in dump.splitlines() if _OURS.fullmatch(line) and not line.endswith(' "";')]
    return "\n".join([*lines, 'Acquire::Retries "3";', 'Acquire::http::Timeout "30";']) + "\n"


class Apt:
    """``folder`` is its own; ``log`` gets what apt prints."""

    def __init__(self, folder: Path, mirror: str, log: Path) -> None:
        self.folder, self.log = folder, log
        for name in ("lists/partial", "cache/archives/partial", "empty.d"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text("\n".join(recipe.sources(mirror)) + "\n", "utf-8")
        (folder / "preferences").write_text(recipe.preferences(), "utf-8")
        self.acquire = folder / "acquire.conf"
        self.acquire.write_text(taken_over(commands.run(["apt-config", "dump", "Acquire"], log).decode()), "utf-8")
        (folder / "apt.conf").write_text(self._configuration(), "utf-8")
        self._environment = {"APT_CONFIG": str(folder / "apt.conf")}

    def _configuration(self) -> str:
        places = {
            "Etc::main": "/dev/null",
            "Etc::parts": f"{self.folder}/empty.d",
            "Etc::sourcelist": f"{self.folder}/sources.list",
            "Etc::sourceparts": f"{self.folder}/empty.d",
            "Etc::preferences": f"{self.folder}/preferences",
            "Etc::preferencesparts": f"{self.folder}/empty.d",
            "State": str(self.folder),
            "State::lists": f"{self.folder}/lists",
            "State::status": f"{self.folder}/status",
            "Cache": f"{self.folder}/cache",
        }
        settings = {f"Dir::{key}": value for key, value in places.items()} | {
            "APT::Architecture": recipe.ARCHITECTURE,
            "APT::Architectures": recipe.ARCHITECTURE,
            "APT::Sandbox::User": "root",  # _apt may not be able to read our cache
            "Acquire::Languages": "none",
            "APT::Update::Error-Mode": "any",
        }
        return self.acquire.read_text("utf-8") + "".join(f'{key} "{value}";\n' for key, value in settings.items())

    async def update(self) -> None:
        """Fetch what has changed in the mirror's lists. Raises ``ImageError``."""
        await commands.follow(["apt-get", "update", "--quiet"], self.log, env=self._environment)

    def search(self, pattern: str) -> list[str]:
        found = commands.run(["apt-cache", "search", "--names-only", pattern], self.log, env=self._environment)
        return [line.split()[0] for line in found.decode().splitlines() if line.strip()]

    def show(self, names: Sequence[str]) -> list[Stanza]:
        argv = ["apt-cache", "show", "--no-all-versions", *names]
        return parse_stanzas(commands.run(argv, self.log, env=self._environment).decode())

    def candidate(self, name: str) -> str:
        stanza = next((stanza for stanza in self.show([name]) if stanza.get("Package") == name), None)
        if stanza is None:
            raise ImageError(f"the Debian mirror has no package {name}; see the log {self.log}")
        return stanza["Version"]

    async def download(self, wanted: Sequence[tuple[str, str]], folder: Path) -> list[Path]:
        paths = [_find(folder, name, version) for name, version in wanted]
        missing = [f"{name}={version}" for (name, version), path in zip(wanted, paths, strict=True) if path is None]
        if missing:
            argv = ["env", f"--chdir={folder}", "apt-get", "download", "--quiet", *missing]
            await commands.follow(argv, self.log, env=self._environment)
        found = [path for name, version in wanted if (path := _find(folder, name, version)) is not None]
        if len(found) < len(wanted):
            raise ImageError(f"apt downloaded {', '.join(missing)}, and not all of them are there; see {self.log}")
        return found


def _find(folder: Path, name: str, version: str) -> Path | None:
    """A downloaded package. apt writes what its name has of colons as %3a, and gives it its name when it is whole."""
    escaped = version.replace(":", "%3a")
    return next(iter(sorted(folder.glob(f"{name}_{escaped}_*.deb"))), None)


# As root, all of it runs in mount and process namespaces of its own: however it ends, no mount and no process is
# left. As another user, mmdebstrap makes a user namespace, and takes its folder away when it is told to end.

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
