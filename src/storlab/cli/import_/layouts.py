"""What kdevops' folders of results say of each file in them: the host, and by its name the file system; the kernel.

See https://github.com/linux-kdevops/kdevops: ``playbooks/roles/sysbench/tasks`` and ``playbooks/roles/fio-tests/tasks``
write ``workflows/sysbench/results/HOST/sysbench_tps.txt`` with a line of text for each setting beside it, and
``workflows/fio-tests/results/HOST/fio-tests-results-HOST/results_JOB.json`` with ``jobs/JOB.ini``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storlab.base.errors import UserError
from storlab.base.reading import open_file
from storlab.base.text import first, grouped, printable
from storlab.base.units import size_text
from storlab.cli.import_.paths import readable
from storlab.tools.cells import NOT_SAID
from storlab.tools.importer import HOST, NODE_NAME

_RESULT = "sysbench_tps.txt"
_KERNEL, _LOG = "last-kernel.txt", "dmesg.txt"
_LONGEST = 63
_HEAD = 1 << 16
_DEV = "-dev"  # what kdevops calls the second host of each two
_SYSBENCH_HOST = re.compile(r"(?:^|-)((?:xfs|ext4|btrfs)(?:-.+)?)$")
_FIO_HOST = re.compile(r".+-fio-tests(?:-(.+))?$")
_VERSION = re.compile(rb"Linux version ([\w.+~-]{1,63})")


def _whole_release(text: str) -> str | None:
    return text if re.fullmatch(r"[\w.+~-]{1,63}", text) else None


def _switch(text: str) -> str | None:
    return {"0": "off", "1": "on", "off": "off", "on": "on"}.get(text.lower())


def _bytes(text: str) -> str | None:
    return size_text(int(text)) if re.fullmatch(r"[1-9][0-9]{2,6}", text) else None


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
        results = [path for path in files if path in self.levels]
        pairs = grouped((str(path).replace(f"{_DEV}/", "/"), path) for path in results).values()
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
    names = grouped((path.parent, path.name) for path in files)
    return [folder for folder, held in names.items() if _RESULT not in held and _SETTINGS.keys() & set(held)]


def _of_sysbench(path: Path) -> _Host | None:
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


def _of_fio(path: Path) -> _Host | None:
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
    log = path.parent / _LOG
    if log.is_file():
        with open_file(log) as file:
            version = _VERSION.search(file.read(_HEAD))
        if version is not None:
            lines = (place / _KERNEL for place in places)
            return _Host({"kernel": version[1].decode("ascii", "replace")}, (log, *lines))
    for place in (path.parent, *places):
        if (release := _line(place / _KERNEL, "a kernel's release", _whole_release)) is not None:
            return _Host({"kernel": release}, (place / _KERNEL,), shared=place == path.absolute().parent.parent)
    return _Host({})


def _line(path: Path, form: str, read: Callable[[str], str | None]) -> str | None:
    """What is in a file of one line; nothing where there is none. Raises ``UserError``."""
    if not path.is_file():
        return None
    with readable(path), open_file(path) as file:
        text = file.read(_HEAD).decode(errors="replace").strip()
    level = read(text)
    if level is None:
        raise UserError(f"{path}, line 1: {printable(text[:_LONGEST])!r} is not {form}, as kdevops writes there")
    return level


def _design(said: Mapping[Path, Mapping[str, str]]) -> tuple[dict[Path, dict[str, str]], tuple[str, ...]]:
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


# Of which node each file of a folder is, and of which test: by the names of files and folders.

_FOLDER, _TEST = "folder", "test"


@dataclass(frozen=True)
class NodeFile:
    """A file, the node that it is of, and the levels that the rest of its path says."""

    path: Path
    node: str
    levels: Mapping[str, str]


def files_by_node(folder: Path, files: Sequence[Path], names: Sequence[str]) -> list[NodeFile]:
    """Those of the nodes with these names, and of their host; without names those of all nodes.

    ``FOLDER/NODE/TEST`` and ``FOLDER/NODE``; with names, the node may stand anywhere in the path. Raises ``UserError``
    where that can't be told, or a test lacks the file of a node.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: name the folder that has the files of all nodes, each in a file or folder of its name"
        )
    parts = {path: (*path.relative_to(folder).parts[:-1], path.stem) for path in files}
    nodes = list(names) or [name for name in dict.fromkeys(each[0] for each in parts.values()) if name != HOST]
    for name in nodes:
        if not re.fullmatch(NODE_NAME, name) or name == HOST:
            raise UserError(
                f"--nodes: {printable(name)!r} can't be a node: write letters, digits, - _ and ., but not {HOST}"
            )
    found: dict[tuple[tuple[str, ...], str], Path] = {}
    for path, each in parts.items():
        at = [place for place, part in enumerate(each) if part in (*nodes, HOST)]
        if len(at) > 1 and names:
            raise UserError(f"{path} is of two nodes by its path, {each[at[0]]} and {each[at[1]]}: name one of them")
        if at:
            test = (*each[: at[0]], *each[at[0] + 1 :])
            other = found.setdefault((test, each[at[0]]), path)
            if other != path:
                raise UserError(f"{other} and {path} are both of node {each[at[0]]} in the same test: leave one out")
    _refuse_missing(folder, found, nodes)
    levels = _levels({test for test, _ in found})
    return [NodeFile(path, node, levels[test]) for (test, node), path in found.items()]


def _refuse_missing(folder: Path, found: Iterable[tuple[tuple[str, ...], str]], nodes: Sequence[str]) -> None:
    tests = grouped(found)
    if not any(node in nodes for held in tests.values() for node in held):
        raise UserError(f"{folder}: no file in it is of a node: {', '.join(nodes) or 'say which there are by --nodes'}")
    for test, held in tests.items():
        if missing := [node for node in nodes if node not in held]:
            said = f" for {printable('/'.join(test))}" if test else ""
            raise UserError(
                f"{folder}: node {missing[0]} has no file{said}, which {held[0]} has: add it, or say which nodes there "
                "are: --nodes NAME,NAME"
            )


def _levels(tests: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], dict[str, str]]:
    every = {test: {_FOLDER: "/".join(test[:-1]), _TEST: test[-1] if test else ""} for test in tests}
    differing = [name for name in (_FOLDER, _TEST) if len({each[name] for each in every.values()}) > 1]
    return {
        test: {name: printable(each[name])[-_LONGEST:] or "." for name in differing} for test, each in every.items()
    }
