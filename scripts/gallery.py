#!/usr/bin/env python3
"""The gallery in docs/gallery: `.venv/bin/python scripts/gallery.py NAME [WORDS]` runs a preset or shipped study.

It makes the picture of its report, writes down how long it took, and writes the pages again. WORDS go to `storlab run`.
`--skip NAME REASON` says why a study has no picture; `--pages` writes the pages alone. Takes root, Chromium, and a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from screenshots import photograph, report_of, storlab  # noqa: E402
from tools import gallery_pages as pages  # noqa: E402

WINDOW = "--window-size=1300,{height}"
MOST = 150_000  # bytes of a picture


def main() -> None:
    """Read the options, run what is to be run, write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="of a preset or a shipped study")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="for `storlab run`")
    parser.add_argument("--height", type=int, default=1250, help="pixels of the report that are shown, at most")
    parser.add_argument("--says", default="", help="a sentence for the page: what the run can't show")
    parser.add_argument("--of", type=Path, metavar="RUN", help="photograph this run, which exists, of NAME with WORDS")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long that took")
    parser.add_argument("--skip", nargs=2, metavar=("NAME", "REASON"), help="why a study has no picture")
    parser.add_argument("--pages", action="store_true", help="write the pages, run nothing")
    options = parser.parse_args()
    if options.skip:
        name, reason = options.skip
        gallery = pages.read_gallery()
        gallery = pages.Gallery(gallery.runs, {**gallery.not_run, name: reason})
    elif options.name:
        if options.of is not None:
            run = photographed(options.name, options.words, options.of, options.height, options.says, options.seconds)
        else:
            run = run_and_photograph(options.name, options.words, options.height, options.says)
        gallery = pages.read_gallery()  # only now: a run takes long, and others may have been written down meanwhile
        left = {name: why for name, why in gallery.not_run.items() if name != options.name}
        gallery = pages.Gallery({**gallery.runs, options.name: run}, left)
    else:
        gallery = pages.read_gallery()
    pages.write_gallery(gallery)
    pages.main()


def run_and_photograph(name: str, words: list[str], height: int, says: str) -> pages.Run:
    """Run it, and put the top of its report into the folder of pictures."""
    with tempfile.TemporaryDirectory(prefix="storlab-gallery-") as folder:
        out = Path(folder, "run")
        began = time.monotonic()
        subprocess.run([*storlab(), "run", name, *words, "--out", str(out)], check=True)
        seconds = round(time.monotonic() - began, 1)
        return photographed(name, words, out, height, says, seconds)


def photographed(name: str, words: list[str], out: Path, height: int, says: str, seconds: float) -> pages.Run:
    """Put the top of the report of a run into the folder of pictures."""
    made = subprocess.run([*storlab(), "report", str(out), "--format", "json"], capture_output=True, check=True)
    summary = json.loads(made.stdout)
    pages.PICTURES.mkdir(parents=True, exist_ok=True)
    picture = pages.PICTURES / f"{name}.png"
    photograph("chromium", report_of(out), picture, [WINDOW.format(height=height)], scale=0.75)
    while picture.stat().st_size > MOST:
        height -= 50
        photograph("chromium", report_of(out), picture, [WINDOW.format(height=height)], scale=0.75)
    cells = summary["cells"]
    shown = " ".join(["storlab", "run", name, *words])
    return pages.Run(shown, seconds, summary["rounds_done"], sum(cell["rounds"] for cell in cells), machine(), says)


def machine() -> str:
    """What it ran on, as far as its reader must know."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**3
    return f"{os.cpu_count()} CPUs and {memory} GiB of a virtual machine, Linux {platform.release().partition('-')[0]}"


if __name__ == "__main__":
    main()
