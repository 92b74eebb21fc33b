"""What tables were derived from, and by what: fingerprints that tell whether deriving again would give the same tables.

Of raw files they hold what the kernel says of them, as Git's index does: name, length, inode, and both times. Contents
can be changed and their time (mtime) set back, but not the time at which the kernel last changed the file (ctime, see
inode(7)), which is new in every copy as well. So tables are believed only in the place where they were derived.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

from storlab.metrics import PROBE
from storlab.record import to_json
from storlab.records.manifest import Manifest
from storlab.records.run_folder import TrialRecord, raw_folder

_PACKAGE = "storlab"
_MOST_FILES = 20_000  # of a trial; a load leaves at most half of that


def of_trial(folder: Path, record: TrialRecord) -> str | None:
    """Of a trial that is done: its record, and the raw files that its loads and probes left in ``folder``.

    ``None`` where there is anything but files, for where a link leads may change unseen; or more than anybody left.
    """
    read_back = msgspec.json.decode(to_json(record), type=TrialRecord)  # so that 1 and 1.0 are the same
    seen = hashlib.sha256(to_json(read_back))
    sources = [*record.loads.items(), *((PROBE + probe, nodes) for probe, nodes in record.probes.items())]
    try:
        for count, entry in enumerate(_files(folder, sources)):
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or count == _MOST_FILES:
                return None
            times = status.st_mtime_ns, status.st_ctime_ns
            name = os.fsencode(entry.path.removeprefix(str(folder)))
            seen.update(repr((name, status.st_size, status.st_ino, *times)).encode())
    except OSError:
        return None
    return seen.hexdigest()


def _files(folder: Path, sources: Iterable[tuple[str, Iterable[str]]]) -> Iterator[os.DirEntry[str]]:
    """All that lies below the raw folders of ``sources`` (with the nodes of each), folders aside, in order."""
    left = [str(raw_folder(folder, node, source)) for source, nodes in sources for node in nodes]
    while left:
        try:
            entries = sorted(os.scandir(left.pop()), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue  # of a load that left nothing
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            else:
                yield entry


def of_run(manifest: Manifest, parsers: Iterable[object]) -> str | None:
    """What is the same for all trials: the code that parses, and what the manifest says of how to.

    ``parsers``: workloads, probes, importers, which may be of other packages. ``None`` where some of the code has no
    files that could be looked at.
    """
    packages = sorted({type(parser).__module__.partition(".")[0] for parser in parsers} | {_PACKAGE})
    code = [_code(package) for package in packages]
    if None in code:
        return None
    asked = msgspec.json.encode(
        (
            manifest.run,
            manifest.study_file,
            manifest.study_text,
            manifest.overrides,
            manifest.only,
            manifest.inputs,
            manifest.imported,
        )
    )
    return hashlib.sha256(repr((code, _libraries(), asked)).encode()).hexdigest()


@cache
def _code(package: str) -> str | None:
    """Of all source files of a package, or of a module without one. Versions stay the same in development.

    As it was when this was first asked: a long run may see it change.
    """
    module = sys.modules.get(package)
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    folder = Path(file).parent
    files = sorted(folder.rglob("*.py")) if Path(file).name == "__init__.py" else [Path(file)]
    seen = hashlib.sha256()
    try:
        for path in files:
            text = path.read_bytes()
            seen.update(f"{path.relative_to(folder)} {len(text)}\n".encode())
            seen.update(text)
    except OSError:
        return None
    return seen.hexdigest() if files else None


def _libraries() -> tuple[str, ...]:
    import numpy as np
    import polars as pl

    return sys.version, np.__version__, pl.__version__, msgspec.__version__


def together(each: Mapping[int, str | None]) -> dict[int, str]:
    """For trials that may need each other's files, one fingerprint of all; none where one of them has none."""
    if None in each.values():
        return {}
    return dict.fromkeys(each, hashlib.sha256(repr(sorted(each.items())).encode()).hexdigest())
