"""What each of Storlab's dependencies costs, on disk and to import: ``python -m tools.install_size``.

Prints the table of ``docs/reference/installing.md``, of what is installed where it runs, which should be all extras.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

PROJECT = "storlab"
SOURCES = Path(__file__).resolve().parents[1] / "src" / PROJECT
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_EXTRA = re.compile(r"extra == ['\"](?P<extra>[\w-]+)['\"]", re.ASCII)
_ALL = "all"  # the extra that has all others
_MEGABYTE = 1_000_000
_REPEATS = 5  # the least of them counts: whatever else runs here only adds to it
_TIMED = """
import resource, importlib
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
before = used()
for module in {modules!r}:
    importlib.import_module(module)
print(used() - before)
"""


@dataclass(frozen=True)
class Requirement:
    """A dependency of a package; ``extra``: the one that asks for it, empty where all installations have it."""

    name: str
    extra: str = ""


@dataclass(frozen=True)
class Cost:
    """Bytes of a dependency, with what it alone brings; seconds of CPU time to import what Storlab uses of it."""

    requirement: Requirement
    size: int
    seconds: float


def requirements(package: str) -> list[Requirement]:
    """What a package asks for, with the extra that does."""
    found = []
    for line in distribution(package).requires or ():
        name, extra = _NAME.match(line), _EXTRA.search(line)
        assert name is not None, f"{package} requires {line!r}"
        found.append(Requirement(_normal(name[0]), extra["extra"] if extra else ""))
    return [each for each in found if each.extra != _ALL]


def _normal(name: str) -> str:
    """As PyPI compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def brought_by(names: Iterable[str], without: Collection[str] = ()) -> dict[str, Distribution]:
    """All that is installed for these packages, they themselves among it, but not ``without`` nor what these bring.

    Extras that packages of others have are not followed.
    """
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found or name in without:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # another platform needs it, or another Python
            continue
        waiting += [each.name for each in requirements(name) if not each.extra]
    return found


def size_of(package: Distribution) -> int:
    """Bytes of its files, without what Python compiles of them later."""
    files = (package.locate_file(file) for file in package.files or () if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in map(Path, map(str, files)) if path.is_file())


def used_modules(package: str) -> list[str]:
    """The modules of a package that Storlab's sources import."""
    tops = {top for top, owners in packages_distributions().items() if package in map(_normal, owners)}
    return sorted({name for name in _imported() if name.partition(".")[0] in tops})


def _imported() -> Iterator[str]:
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module


def import_seconds(modules: list[str]) -> float:
    """CPU time to import them and all that they import, in a Python of its own."""
    argv = [sys.executable, "-c", _TIMED.format(modules=modules)]
    return min(float(subprocess.run(argv, check=True, capture_output=True).stdout) for _ in range(_REPEATS))


def costs() -> list[Cost]:
    """Of each direct dependency, the largest first. What several of them bring counts for none."""
    direct = requirements(PROJECT)
    names = {each.name for each in direct}
    brought = {name: brought_by([name], without=names - {name}) for name in names}
    found = []
    for each in direct:
        others = set().union(*(brought[name] for name in names - {each.name}))
        own = [package for name, package in brought[each.name].items() if name not in others]
        found.append(Cost(each, sum(map(size_of, own)), import_seconds(used_modules(each.name))))
    return sorted(found, key=lambda cost: -cost.size)


def table(found: list[Cost]) -> Iterator[str]:
    """As Markdown, with the sums of a base installation and of one with all extras."""
    direct = [cost.requirement for cost in found]
    base = [each.name for each in direct if not each.extra]
    yield "| dependency | extra | MB | CPU s to import |"
    yield "| --- | --- | --- | --- |"
    for cost in found:
        extra = f"`{cost.requirement.extra}`" if cost.requirement.extra else ""
        yield f"| {cost.requirement.name} | {extra} | {cost.size / _MEGABYTE:.1f} | {cost.seconds:.2f} |"
    for what, names in (("base installation", base), ("all extras", [each.name for each in direct])):
        whole = sum(map(size_of, brought_by(names).values()))
        yield f"| **{what}**, without Storlab | | {whole / _MEGABYTE:.0f} | |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(table(costs())) + "\n")
