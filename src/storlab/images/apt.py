"""A private apt: its lists and downloads lie in our cache, its sources are the recipe's, the host's are not touched.

Works as any user. Proxies and the like are taken over from the host's configuration: apt.conf(5). What apt prints
about packages is read by deb-control(5).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cmp_to_key
from pathlib import Path

from storlab.errors import ImageError
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
