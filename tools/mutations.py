"""Breaks Storlab at places drawn by a seed, and says how many of them the tests notice.

python -m tools.mutations SEED --list > places.json
pytest --tier test --collect-only --quiet > tests.txt
python -m tools.mutations SEED --places places.json --coverage .make/coverage/data --tests tests.txt

A place is a comparison that is turned round, a line that is left out, or an undo that is not registered, in run/,
layers/ or analysis/. For each, in a copy of this checkout, the tests run that reach its line by what `make coverage`
measured, the cheapest first, until one fails that passes where nothing is broken. tests.txt: the tests that count, a
line each. With the places of an earlier run two suites are tried with the same ones.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = ("run", "layers", "analysis")
KINDS = ("comparison", "line", "undo")
NOBODY, TOO_LONG = "no test", "took too long"
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """``line`` of ``file``, relative to src/storlab, whose source is ``was``; ``number``: which of such nodes there."""

    kind: str
    file: str
    line: int
    was: str
    number: int


def places_in(file: str, source: str) -> Iterator[tuple[Place, ast.AST]]:
    """Every place that may be broken, with its node."""
    seen: dict[tuple[str, str], int] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPPOSITE:
            kind = "comparison"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
            kind = "undo" if _registers(node.value) else "line"
        elif isinstance(node, ast.AugAssign | ast.Raise):
            kind = "line"
        else:
            continue
        was = ast.unparse(node)
        number = seen.get((kind, was), 0)
        seen[kind, was] = number + 1
        yield Place(kind, file, node.lineno, was, number), node


def _registers(value: ast.expr) -> bool:
    call = value.value if isinstance(value, ast.Await) else value
    return isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2].startswith(("register", "announce"))


def find(source: str, place: Place) -> tuple[Place, ast.AST]:
    """The same place where it is now. Raises ``LookupError`` where it is no longer there."""
    for found, node in places_in(place.file, source):
        if (found.kind, found.was, found.number) == (place.kind, place.was, place.number):
            return found, node
    raise LookupError(f"{place.file} has no {place.was!r} any more")


def broken(source: str, node: ast.AST) -> str:
    """The source with the place of this node broken."""
    if isinstance(node, ast.Compare):
        node.ops = [_OPPOSITE[type(node.ops[0])]()]
        text = f"({ast.unparse(node)})"
    else:
        text = "pass"
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None and node.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    before, after = lines[: node.lineno - 1], lines[node.end_lineno :]
    whole = lines[node.lineno - 1][: node.col_offset], lines[node.end_lineno - 1][node.end_col_offset :]
    return b"".join([*before, whole[0], text.encode(), whole[1], *after]).decode()


def draw(seed: int, count: int) -> list[Place]:
    """A third of each kind."""
    files = sorted(path for package in PACKAGES for path in (ROOT / "src/storlab" / package).rglob("*.py"))
    every = [place for path in files for place, _ in places_in(_name(path), path.read_text("utf-8"))]
    chance = random.Random(seed)
    return [
        place for kind in KINDS for place in _drawn(chance, [each for each in every if each.kind == kind], count // 3)
    ]


def _drawn(chance: random.Random, places: list[Place], count: int) -> list[Place]:
    return sorted(chance.sample(places, min(count, len(places))), key=lambda place: (place.file, place.line))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT / "src/storlab"))


def tests_that_reach(data: Path, place: Place, line: int) -> set[str]:
    """The tests in which this line ran, by what coverage measured."""
    query = """
        select distinct context.context from arc join file on file.id = arc.file_id
        join context on context.id = arc.context_id
        where file.path like ? and (abs(arc.fromno) = ? or abs(arc.tono) = ?)
    """
    with sqlite3.connect(data) as connection:
        rows = connection.execute(query, (f"%/storlab/{place.file}", line, line)).fetchall()
    return {test for (contexts,) in rows for test in contexts.split("|") if test}


def copy_checkout(to: Path) -> Path:
    """All that git knows of this checkout, as it is now, with the agent that was built."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    (to / "agent/target").symlink_to(ROOT / "agent/target")
    return to


def run_tests(copy: Path, arguments: list[str], limit: float) -> subprocess.CompletedProcess[str]:
    """Run pytest in the copy. Raises ``TimeoutExpired`` after ``limit`` s, and nothing of it runs on."""
    (copy / "chosen").write_text("\n".join(arguments))
    command = [sys.executable, "-m", "pytest", "--exitfirst", "--quiet", "-p", "no:cacheprovider", "@chosen"]
    # A folder of its own: what is broken may leave mounts there, which the next run of pytest could not remove.
    own = tempfile.mkdtemp(prefix="t-", dir=copy.parent)
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTEST_DEBUG_TEMPROOT": own}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=copy, env=environment, start_new_session=True, **options) as process:
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    return subprocess.CompletedProcess(command, process.returncode, said)


def notice(copy: Path, tests: list[str], limit: float) -> str:
    """Which test failed in the copy first, ``NOBODY``, or ``TOO_LONG`` where they took longer than ``limit`` s.

    Raises ``RuntimeError`` where pytest itself failed, which tells nothing.
    """
    try:
        ran = run_tests(copy, tests, limit)
    except subprocess.TimeoutExpired:
        return TOO_LONG
    if ran.returncode == 0:
        return NOBODY
    failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not failed and re.search(r"^\d+ passed", ran.stdout, re.MULTILINE):
        return NOBODY  # a warning when all had passed
    if not failed:
        raise RuntimeError(f"pytest ended with status {ran.returncode}: {ran.stdout[-2000:]}")
    return failed[0].split(" ", 1)[1].split(" - ")[0]


def breaks(copy: Path, path: Path, place: Place, tests: list[str], limit: float) -> str:
    """What `notice` says of the copy in which this place of ``path`` is broken, without tests that fail anyway."""
    source = path.read_text("utf-8")
    left = tests
    while left:
        path.write_text(broken(source, find(source, place)[1]), "utf-8")
        found = notice(copy, left, limit)
        path.write_text(source, "utf-8")
        if found in (NOBODY, TOO_LONG) or notice(copy, [found], limit) == NOBODY:
            return found
        left = left[left.index(found) + 1 :] if found in left else []
    return NOBODY


def main() -> None:
    """Print what became of each place, and how many were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("seed", type=int)
    parser.add_argument("--coverage", type=Path)
    parser.add_argument("--places", type=Path, help="JSON by --list")
    parser.add_argument("--list", action="store_true", help="print the places as JSON, and end")
    parser.add_argument("--tests", type=Path, help="the tests that may run, a line each")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--limit", type=float, default=240.0, help="s for each place")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    places = (
        [Place(**each) for each in json.loads(asked.places.read_text())]
        if asked.places
        else draw(asked.seed, asked.count)
    )
    if asked.list:
        print(json.dumps([asdict(place) for place in places], indent=1))
        return
    allowed = {line for line in asked.tests.read_text().splitlines() if "::" in line}
    costs = json.loads((ROOT / "tests/tiers/costs.json").read_text())["tests"]
    results = []
    with tempfile.TemporaryDirectory(prefix="m-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        copy = copy_checkout(Path(folder) / "checkout")
        if (status := run_tests(copy, ["--collect-only", *sorted(allowed)], asked.limit).returncode) != 0:
            parser.error(f"the tests can't be collected in an unbroken copy: pytest ended with status {status}")
        for place in places:
            path = copy / "src/storlab" / place.file
            line = find(path.read_text("utf-8"), place)[0].line
            reaching = tests_that_reach(asked.coverage, place, line) & allowed
            tests = sorted(reaching, key=lambda test: costs.get(test, 0.0))
            found = breaks(copy, path, place, tests, asked.limit)
            results.append({**asdict(place), "tests": len(tests), "noticed": found})
            what = place.was.splitlines()[0][:60]
            print(f"{place.kind:10} {place.file}:{line} {what}: {len(tests)} tests, {found}", flush=True)
    noticed = sum(each["noticed"] not in (NOBODY, TOO_LONG) for each in results)
    print(f"seed {asked.seed}: {noticed} of {len(results)} were noticed")
    if asked.out:
        asked.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
