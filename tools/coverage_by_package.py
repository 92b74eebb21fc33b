"""Says which part of each package's lines and branches tests reach, of data that `coverage` has combined.

python -m tools.coverage_by_package DATA JSON [EARLIER]: writes the figures to JSON; compares with those of EARLIER.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import coverage

ALLOWED = 0.3  # points that a package may lose


@dataclass(frozen=True)
class Reached:
    """Statements and branches of a package, and how many of them a test reached."""

    reached: int
    all: int

    @property
    def percent(self) -> float:
        """Of both together; 100 where there are none."""
        return 100.0 * self.reached / self.all if self.all else 100.0


def by_package(data: Path) -> tuple[dict[str, Reached], dict[str, list[int]]]:
    """Package → what was reached of it; file → lines that no test reached."""
    measured = coverage.Coverage(data_file=str(data))
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        measured.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    missing = {}
    for name, file in files.items():
        inside = name.split("storlab/", 1)[1]
        package = inside.split("/")[0] if "/" in inside else "(top)"
        summary = file["summary"]
        sums[package][0] += summary["covered_lines"] + summary["covered_branches"]
        sums[package][1] += summary["num_statements"] + summary["num_branches"]
        missing[inside] = file["missing_lines"]
    return {package: Reached(*each) for package, each in sorted(sums.items())}, missing


def main() -> int:
    """How many packages lost more than is allowed: status 1 if any did."""
    data, out, *earlier = map(Path, sys.argv[1:])
    packages, missing = by_package(data)
    kept = {"packages": {name: [each.reached, each.all] for name, each in packages.items()}, "missing": missing}
    out.write_text(json.dumps(kept) + "\n")
    before = (
        {name: Reached(*each) for name, each in json.loads(earlier[0].read_text())["packages"].items()}
        if earlier
        else {}
    )
    lost = 0
    for name, each in packages.items():
        change = f"{each.percent - before[name].percent:+8.2f}" if name in before else ""
        lost += name in before and each.percent < before[name].percent - ALLOWED
        print(f"{name:14} {each.reached:6} of {each.all:6} {each.percent:7.2f} % {change}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
