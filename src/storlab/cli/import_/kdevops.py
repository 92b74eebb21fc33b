"""What kdevops' folders of results say of each file in them: the host, and by its name the file system; the kernel.

See https://github.com/linux-kdevops/kdevops: ``playbooks/roles/sysbench/tasks`` and ``playbooks/roles/fio-tests/tasks``
write ``workflows/sysbench/results/HOST/sysbench_tps.txt`` with a line of text for each setting beside it, and
``workflows/fio-tests/results/HOST/fio-tests-results-HOST/results_JOB.json`` with ``jobs/JOB.ini``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storlab.errors import UserError
from storlab.grouping import grouped
from storlab.reading import open_file
from storlab.text import first, printable
from storlab.tools.cells import NOT_SAID
from storlab.units import size_text

_RESULT = "sysbench_tps.txt"
_KERNEL, _LOG = "last-kernel.txt", "dmesg.txt"
_LONGEST = 63
_HEAD = 1 << 16
_DEV = "-dev"  # what kdevops calls the second host of each two
_SYSBENCH_HOST = re.compile(r"(?:^|-)((?:xfs|ext4|btrfs)(?:-.+)?)$")
_FIO_HOST = re.compile(r".+-fio-tests(?:-(.+))?$")
_VERSION = re.compile(rb"Linux version ([\w.+~-]{1,63})")
_RELEASE = re.compile(r"[\w.+~-]{1,63}")


def _switch(text: str) -> str | None:
    return {"0": "off", "1": "on", "off": "off", "on": "on"}.get(text.lower())


def _bytes(text: str) -> str | None:
    return size_text(int(text)) if re.fullmatch(r"[1-9][0-9]{2,6}", text) else None


def _release(text: str) -> str | None:
    return text if _RELEASE.fullmatch(text) else None


_SETTINGS: Mapping[str, tuple[str, str, Callable[[str], str | None]]] = {
    "innodb_doublewrite.txt": ("doublewrite", "0 or 1", _switch),
    "full_page_writes.txt": ("full_page_writes", "on or off", _switch),
    "innodb_page_size.txt": ("page_size", "a number of bytes", _bytes),
    "postgresql_blocksize.txt": ("page_size", "a number of bytes", _bytes),
}
"""Files beside a result: the factor, what they hold, and how that is read."""
_FACTORS = ("fs", "doublewrite", "full_page_writes", "page_size", "kernel", "node", "host")
"""The first of them count where several say the same."""


@dataclass(frozen=True)
class _Host:
    """What is known of one result: factor → level. ``used``: the files that say so; ``shared``: the kernel is that
    of the whole folder."""

    said: Mapping[str, str]
    used: tuple[Path, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class Laid:
    """Results in kdevops' folders: the levels of each, what else is to be said, and which other files were read."""

    levels: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    used: tuple[Path, ...] = ()

    def of(self, files: Sequence[Path]) -> list[Path]:
        """Those among ``files`` that are results, where there are any, the first host of each two first; else all."""
        results = [path for path in files if path in self.levels]
        pairs = grouped((_plain(path), path) for path in results).values()
        return [path for pair in pairs for path in sorted(pair, key=lambda path: len(str(path)))] or list(files)


def laid_by_kdevops(kind: str, found: Sequence[Sequence[Path]]) -> Laid:
    """Of the files ``found`` below each path that was given, those that lie as kdevops lays them.

    Raises ``UserError`` if only some paths hold such files, or a file has an invalid value.
    """
    about = {"sysbench": _of_sysbench, "fio": _of_fio}.get(kind)
    if about is None:
        return Laid()
    hosts = {path: host for files in found for path in files if (host := about(path)) is not None}
    if not hosts:
        return Laid()
    for files in found:
        if not any(path in hosts for path in files):
            raise UserError(
                f"{files[0]} is not in a result folder of kdevops, and {next(iter(hosts))} is: import them separately"
            )
    levels, notes = _design({path: host.said for path, host in hosts.items()})
    shared = [str(path) for path, host in hosts.items() if host.shared]
    if len(shared) > 1:
        notes = (*notes, f"The kernel is from {_KERNEL}, which kdevops writes for one host only: {first(shared)}.")
    return Laid(levels, notes, tuple(dict.fromkeys(path for host in hosts.values() for path in host.used)))


def unfinished(files: Sequence[Path]) -> list[Path]:
    """Folders of hosts that have settings, and no result."""
    names = grouped((path.parent, path.name) for path in files)
    return [folder for folder, held in names.items() if _RESULT not in held and _SETTINGS.keys() & set(held)]


def _of_sysbench(path: Path) -> _Host | None:
    """Nothing where neither a setting nor a kernel is with it: then only its name is as kdevops would have it."""
    if path.name != _RESULT:
        return None
    folder = path.absolute().parent
    said, used = {}, []
    for name, (factor, form, read) in _SETTINGS.items():
        if (level := _line(path.parent / name, form, read)) is not None:
            said[factor] = level
            used.append(path.parent / name)
    name = folder.name.removesuffix(_DEV)
    kernel = _kernel(path, (folder.parent, folder.parent / f"{name}-ab"))
    if not (said or kernel.said):
        return None
    fs = _SYSBENCH_HOST.search(name)
    return _host(folder.name, fs[1] if fs else "", kernel, said, used)


def _plain(path: Path) -> str:
    return str(path).replace(f"{_DEV}/", "/")


def _of_fio(path: Path) -> _Host | None:
    """Nothing where its job file, or a host's name, is missing."""
    job = path.name.removeprefix("results_").removesuffix(".json")
    if path.name != f"results_{job}.json" or not (path.parent / "jobs" / f"{job}.ini").is_file():
        return None
    folder = path.absolute().parent
    for name in (folder.name.removeprefix("fio-tests-results-"), folder.parent.name):
        if (host := _FIO_HOST.fullmatch(name.removesuffix(_DEV))) is not None:
            kernel = _kernel(path, (folder.parent, folder.parent.parent))
            return _host(name, host[1] or "", kernel, {}, [path.parent / "jobs" / f"{job}.ini"])
    return None


def _host(name: str, fs: str, kernel: _Host, said: Mapping[str, str], used: Sequence[Path]) -> _Host:
    own = {"fs": fs, **said, **kernel.said, "node": "dev" if name.endswith(_DEV) else "baseline", "host": name}
    levels = {factor: printable(level) for factor, level in own.items() if level}
    if len(levels["host"]) > _LONGEST:  # cut, the names of two hosts might be one, and their results rounds of it
        raise UserError(f"{levels['host']}: no host's name has more than {_LONGEST} characters: rename this folder")
    return _Host(levels, (*used, *kernel.used), kernel.shared)


def _kernel(path: Path, places: Sequence[Path]) -> _Host:
    """By the kernel's own log of the host, which counts, or the line that kdevops writes."""
    log = path.parent / _LOG
    if log.is_file():
        with open_file(log) as file:
            version = _VERSION.search(file.read(_HEAD))
        if version is not None:
            lines = (place / _KERNEL for place in places)
            return _Host({"kernel": version[1].decode("ascii", "replace")}, (log, *lines))
    for place in (path.parent, *places):
        if (release := _line(place / _KERNEL, "a kernel's release", _release)) is not None:
            return _Host({"kernel": release}, (place / _KERNEL,), shared=place == path.absolute().parent.parent)
    return _Host({})


def _line(path: Path, form: str, read: Callable[[str], str | None]) -> str | None:
    """What is in a file of one line; nothing where there is none. Raises ``UserError``."""
    if not path.is_file():
        return None
    try:
        with open_file(path) as file:
            text = file.read(_HEAD).decode(errors="replace").strip()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    level = read(text)
    if level is None:
        raise UserError(f"{path}, line 1: {printable(text[:_LONGEST])!r} is not {form}, as kdevops writes there")
    return level


def _design(said: Mapping[Path, Mapping[str, str]]) -> tuple[dict[Path, dict[str, str]], tuple[str, ...]]:
    """The levels of each file: of factors that differ, and don't follow from those before them. What does is a note."""
    whole = {path: {name: each.get(name, NOT_SAID) for name in _FACTORS} for path, each in said.items()}
    kept: list[str] = []
    notes = []
    for name in _FACTORS:
        values = dict.fromkeys(each[name] for each in whole.values())
        if len(values) < 2:
            continue
        by = grouped((tuple(each[of] for of in kept), each[name]) for each in whole.values())
        if any(len(set(levels)) > 1 for levels in by.values()):
            kept.append(name)
        elif name not in ("node", "host"):
            told = (f"{', '.join(levels)}: {of[0]}" for levels, of in by.items())
            notes.append(f"Set-ups differ in {name} as well ({first(list(told), '; ')}).")
    return {path: {name: each[name] for name in kept or ["host"]} for path, each in whole.items()}, tuple(notes)
