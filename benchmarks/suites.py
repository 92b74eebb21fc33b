"""What a suite costs beyond its tests: ours, the ZFS Test Suite's own runner and a bare loop, all in one guest.

    uv run python -m benchmarks.suites [--quick] [--json FILE]

Five questions, the first three of one run of a suite in one guest, in rounds that take turns.

``trivial``: forty tests that note the time and end, so that what is between two of them counts and no runner's own
start: ours, by `test-runner.py` with its sudo, and by a loop in a bare shell. ``lines``: one test that prints 300,000
lines, beyond a trivial one, ours and by `test-runner.py`.

``lost``: a test that makes the kernel panic, from its start to that of the next one in another guest: the first time
in a fresh one, later in the spare one that was prepared meanwhile; and a restored guest in which nothing is prepared.

``guests``: groups that compute, by one guest and by two, from the start of the first to the end of the last.
``records``: CPU time to read and report 10,000 and 100,000 results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.boot_storlab import Laboratory
from storlab.base.errors import MissingImage
from storlab.images.image import Image, find_image
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.records.manifest import Manifest, write_manifest
from storlab.suites.model import Attempt, Group, Outcome, Script
from storlab.suites.places.kinds import OWN_TESTS
from storlab.suites.records.folder import SuiteRecord, SuiteRun, read_suite_run, write_suite_record
from storlab.suites.report.formats import render

_TESTS = 40
_LINES = 300_000
_REST = 20  # s, in which a spare guest is prepared
_RUNNER = "/usr/share/zfs/test-runner/bin/test-runner.py"
_HEAD = "[DEFAULT]\npre =\npost =\npre_user = root\nuser = root\npost_user = root\ntimeout = 900\nquiet = False\n"
_LATER, _RESTORED = "a later one, s", "a restored guest, s"
_NAMES = [f"t{number:02}" for number in range(_TESTS)]
_STAMPS = "/var/tmp/stamps"
_TRIVIAL = f"echo $EPOCHREALTIME >> {_STAMPS}"
_STAMPED = f"""
stamped() {{
    echo "$1 $(tr '\\n' ' ' < {_STAMPS})"
    rm {_STAMPS}
}}
"""
_BESIDE = f"""{_STAMPED}
cd "$TMPDIR"
by_runner() {{
    python3 {_RUNNER} -c "{OWN_TESTS}/$1.run" -o "$TMPDIR/out" > /dev/null
    rm -rf "$TMPDIR/out"
}}
for each in {OWN_TESTS}/trivial/t*; do "$each"; done
stamped loop
by_runner trivial
stamped runner
for name in one lines; do
    began=$EPOCHREALTIME
    by_runner $name
    echo "$name $began $EPOCHREALTIME"
done
rm {_STAMPS}
"""


def main() -> None:
    """Run all five and print the figures."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two rounds, less work")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("suites needs root: a suite's guests have disks that only root may hand over")
    try:
        image = find_image()
    except MissingImage as error:
        raise SystemExit(str(error)) from None
    found: dict[str, Any] = {"load": os.getloadavg()}
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/var/tmp") as made:
        os.environ["XDG_STATE_HOME"] = f"{made}/state"
        found |= one_guest(Path(made) / "one", 2 if chosen.quick else 5)
        found[_RESTORED] = round(asyncio.run(restored(image, 3)), 2)
        found["a later loss / a restored guest"] = round(found[_LATER] / found[_RESTORED], 2)
        found |= several(Path(made) / "several", groups=12 if chosen.quick else 16)
        found |= records(Path(made) / "records")
    found["load at the end"] = os.getloadavg()
    for name, value in found.items():
        print(f"{name:56} {value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")


def one_guest(folder: Path, rounds: int) -> dict[str, object]:
    """Trivial tests, a test that prints, and one that loses its guest."""
    own = folder / "own"
    for name in _NAMES:
        _script(own / "trivial" / name, _TRIVIAL)
    _script(own / "trivial" / "says", f"{_STAMPED}stamped ours")
    _script(own / "prints" / "lines", f"yes 'a line as long as those that tests print' | head -n {_LINES}")
    _script(own / "prints" / "last", "exit 0")
    _script(own / "lost" / "panics", "echo c > /proc/sysrq-trigger; sleep 1000")
    _script(own / "lost" / "next", "exit 0")
    _script(own / "lost" / "rests", f"sleep {_REST}")
    _script(own / "beside" / "beside", _BESIDE)
    for name, tests, where in (
        ("one", _NAMES[:1], "trivial"),
        ("trivial", _NAMES, "trivial"),
        ("lines", ["lines"], "prints"),
    ):
        (own / f"{name}.run").write_text(f"{_HEAD}tags = ['own']\n[{OWN_TESTS}/{where}]\ntests = {tests}\n")
    runfile = f"{_HEAD}tags = ['own']\n"
    for number in range(rounds):
        runfile += f"[trivial:{number}]\ntests = {[*_NAMES, 'says']}\n[prints:{number}]\ntests = ['lines', 'last']\n"
        runfile += f"[beside:{number}]\ntests = ['beside']\n"
    runfile += "".join(f"[lost:{number}]\ntests = ['panics', 'next', 'rests']\n" for number in range(rounds))
    run = _run(folder, own, runfile, 1)
    sides = [_round(run, number) for number in range(rounds)]
    lost = [_loss(run, number) for number in range(rounds)]
    medians = {name: round(statistics.median(each[name] for each in sides), 4) for name in sides[0]}
    return {
        **medians,
        "overhead per test, ours / test-runner's": _ratio(
            [
                (s["ours, s a test"] - s["loop, s a test"]) / (s["test-runner, s a test"] - s["loop, s a test"])
                for s in sides
            ]
        ),
        "300,000 lines, ours / test-runner's": _ratio([s["ours, lines s"] / s["test-runner, lines s"] for s in sides]),
        "the first lost guest, s": round(lost[0], 2),
        _LATER: round(statistics.median(lost[1:]), 2),
    }


def _round(run: SuiteRun, number: int) -> dict[str, float]:
    prints = _starts(run, "prints", number)
    said = [*_of(run, "trivial", number)[-1:], *_of(run, "beside", number)]
    lines = [line.split() for each in said for line in (run.folder / each.folder / "stdout").read_text().splitlines()]
    noted = {name: [float(time) for time in times] for name, *times in lines}
    ours, loop, runner = (_between(noted[name]) for name in ("ours", "loop", "runner"))
    one, all_lines = (noted[name][1] - noted[name][0] for name in ("one", "lines"))
    return {
        "ours, s a test": ours,
        "loop, s a test": loop,
        "test-runner, s a test": runner,
        "ours, lines s": prints[1] - prints[0] - ours,
        "test-runner, lines s": all_lines - one,
    }


def _between(times: list[float]) -> float:
    assert len(times) == _TESTS
    return (times[-1] - times[0]) / (_TESTS - 1)


def _loss(run: SuiteRun, number: int) -> float:
    """Seconds from the start of the test that loses its guest to that of the next one."""
    first, second, _ = _starts(run, "lost", number)
    return second - first


def _of(run: SuiteRun, group: str, number: int) -> list[Attempt]:
    return [a for a in run.attempts if (a.path.split("/")[-2], a.identifier) == (group, str(number))]


def _starts(run: SuiteRun, group: str, number: int) -> list[float]:
    return [attempt.started.timestamp() for attempt in _of(run, group, number)]


async def restored(image: Image, rounds: int) -> float:
    """Seconds until a restored guest has run a command: the median."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/tmp") as made:  # short, for sockets
        async with Laboratory.of(image, Path(made)) as laboratory:
            took = []
            for _ in range(rounds + 1):  # the first one saves it
                async with AsyncExitStack() as stack:
                    began = time.monotonic()
                    guest = await laboratory.guest(stack, Hardware(start="restored"))
                    await guest.node.run(["true"])
                    took.append(time.monotonic() - began)
            return statistics.median(took[1:])


def several(folder: Path, groups: int) -> dict[str, object]:
    """Groups that compute, by one guest and by two."""
    own = folder / "own"
    _script(own / "work" / "computes", "for ((i = 0; i < 400000; i++)); do :; done")
    runfile = f"{_HEAD}tags = ['own']\n" + "".join(f"[work:{n}]\ntests = ['computes']\n" for n in range(groups))
    took = {}
    for guests in (1, 2):
        run = _run(folder / str(guests), own, runfile, guests)
        ends = [attempt.started.timestamp() + attempt.elapsed for attempt in run.attempts]
        took[guests] = max(ends) - min(attempt.started.timestamp() for attempt in run.attempts)
    return {
        **{f"{guests} guest{'s' * (guests > 1)}, s": round(value, 1) for guests, value in took.items()},
        "one guest / two": round(took[1] / took[2], 2),
    }


def records(folder: Path) -> dict[str, object]:
    """CPU seconds to read and report many results, and how they grow."""
    took = {count: _reported(folder / str(count), count) for count in (10_000, 100_000)}
    return {
        **{f"{count} results, CPU s": round(value, 2) for count, value in took.items()},
        "100,000 results / 10,000": round(took[100_000] / took[10_000], 1),
    }


def _reported(folder: Path, count: int) -> float:
    folder.mkdir(parents=True)
    began = datetime.now(UTC).replace(microsecond=0)
    groups = tuple(_group(number) for number in range(count // 100))
    write_manifest(
        folder, Manifest(run="20260101-000000-0000", title="", storlab="", argv=(), started=began, suite="own")
    )
    write_suite_record(folder, SuiteRecord(name="own", runner="root", groups=groups, runfiles=(), testdir="/tests"))
    with (folder / "results.jsonl").open("wb") as file:
        for attempt in _results(groups, began):
            file.write(msgspec.json.encode(attempt) + b"\n")
    before = time.process_time()
    run = read_suite_run(folder)
    for name in ("text", "junit", "json"):
        render(run, name)
    return time.process_time() - before


def _group(number: int) -> Group:
    tests = tuple(Script(f"/tests/group{number}/test{each}", "root") for each in range(100))
    return Group(f"/tests/group{number}", tests)


def _results(groups: tuple[Group, ...], began: datetime) -> Iterator[Attempt]:
    number = 0
    for group in groups:
        for test in group.tests:
            number += 1
            outcome = Outcome.FAIL if number % 50 == 0 else Outcome.PASS
            started = began + timedelta(seconds=number)
            yield Attempt(group.name, test.path, "test", outcome, started, 0.5, user="root", code=0, guest="guest-1")


def _run(folder: Path, own: Path, runfile: str, guests: int) -> SuiteRun:
    """Run a suite as its users do. What it has to be is in its results; unexpected outcomes end the benchmark."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.run").write_text(runfile)
    out = folder / "out"
    program = Path(sys.executable).with_name("storlab")
    argv = [
        program,
        "suite",
        "run",
        folder / "own.run",
        "--tests",
        own,
        "--guests",
        str(guests),
        "--out",
        out,
        "--quiet",
    ]
    ended = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 3):
        raise SystemExit(f"storlab suite run ended with {ended.returncode}: {ended.stderr}")
    run = read_suite_run(out)
    for attempt in run.attempts:
        expected = Outcome.CRASHED if attempt.path.endswith("/panics") else Outcome.PASS
        if attempt.outcome is not expected:
            raise SystemExit(f"{attempt.path}: {attempt.outcome} {attempt.reason}\n{run.last_words(attempt)}")
    return run


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def _ratio(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
