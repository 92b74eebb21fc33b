"""Runs the benchmarks: ``python -m benchmarks [--quick] [NAME …]``.

A benchmark is a module here with a ``main()``. It is run as ``python -m benchmarks.NAME [--quick] --json FILE``:
prints its tables, and writes its figures as JSON to that file. Which it was, when and on which machine, and all
figures go to ``results/latest.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
_MAIN = re.compile(r"^def main\(", re.MULTILINE)


def main() -> int:
    """Run the chosen benchmarks, or all; the status is the number of those that failed."""
    names = benchmarks(HERE)
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="smaller data, fewer repeats")
    options.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(names)} (default: all)")
    chosen = options.parse_args()
    if unknown := set(chosen.names) - set(names):
        options.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    results: dict[str, object] = {"machine": machine(), "quick": chosen.quick, "benchmarks": {}}
    figures: dict[str, object] = {}
    failed = 0
    for name in chosen.names or names:
        print(f"== {name}", flush=True)
        status, figures[name] = run(name, quick=chosen.quick)
        failed += status != 0
    results["benchmarks"] = figures
    file = HERE / "results" / "latest.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    print(f"All figures: {file}")
    return failed


def benchmarks(folder: Path) -> list[str]:
    """The modules in ``folder`` that have a ``main()`` and are no one's child or part."""
    candidates = (file for file in sorted(folder.glob("*.py")) if not file.stem.endswith("_child"))
    return [file.stem for file in candidates if file.stem[0] != "_" and _MAIN.search(file.read_text("utf-8"))]


def run(name: str, *, quick: bool) -> tuple[int, object]:
    """One benchmark in a process of its own: its exit status, and its figures where it wrote some."""
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-") as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if quick else []), "--json", str(file)]
        status = subprocess.run(command, cwd=HERE.parent, check=False).returncode
        if status != 0:
            print(f"{name} ended with status {status}", file=sys.stderr)
        return status, json.loads(file.read_text("utf-8")) if file.exists() else None


def machine() -> dict[str, object]:
    """When and where, for whoever compares two files."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
