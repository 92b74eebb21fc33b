#!/usr/bin/env python3
"""The pictures in docs/images, made from runs: `.venv/bin/python scripts/screenshots.py` runs both studies first.

report.png and report-dark.png show the HTML report of a run of the study `quick`, by headless Chromium;
variability.png and variability-dark.png show the section of the pair that examples/sysbench_pair.py writes;
terminal.svg shows `storlab report` on a run of examples/ten-lines.toml, by a pseudo-terminal and Rich.
Without folders of runs both are run again, which takes five minutes, root, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
from datetime import datetime
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TEN_LINES = ROOT / "examples" / "ten-lines.toml"
COLUMNS = 92
WIDTH, SCALE = 1300, 1.5  # CSS pixels of the window; a README shows it at about three quarters of that
DARK = "--blink-settings=preferredColorScheme=0"


def main() -> None:
    """Read the options, run what is to be run, make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", metavar="RUN", type=Path, help="take this run of `quick`, rather than a new one")
    parser.add_argument("--terminal", metavar="RUN", type=Path, help="take this run of examples/ten-lines.toml")
    parser.add_argument("--out", metavar="DIR", type=Path, default=ROOT / "docs" / "images", help="where they go")
    parser.add_argument("--height", metavar="PIXELS", type=int, default=1230, help="how much of the report is shown")
    parser.add_argument("--pair", action="store_true", help="make those of the pair of files only")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("screenshots: chromium is not installed: sudo apt-get install chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="storlab-pair-") as folder:
        photograph_pair(chromium, import_pair(Path(folder)), options.out)
    if options.pair:
        return
    page = report_of(options.report or run_study("quick"))
    for name, flags in (("report.png", []), ("report-dark.png", [DARK])):
        photograph(chromium, page, options.out / name, [f"--window-size={WIDTH},{options.height}", *flags])
        print(options.out / name)
    print(draw_terminal(options.terminal or run_study(str(TEN_LINES)), options.out / "terminal.svg"))


def run_study(study: str) -> Path:
    """Run a study to its end, in sight of whoever waits for it."""
    folder = ROOT / "runs" / f"picture-{Path(study).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    subprocess.run([*storlab(), "run", study, "--out", str(folder)], check=True)
    return folder


def photograph_pair(chromium: str, run: Path, out: Path) -> None:
    """How much a pair of databases varies, and over time."""
    pair = framed(report_of(run), "variability")
    for name, flags in (("variability.png", []), ("variability-dark.png", [DARK])):
        still = ["--force-prefers-reduced-motion", f"--window-size={WIDTH},1460", *flags]
        photograph(chromium, pair, out / name, still)
        print(out / name)
    shutil.copy(pair.parent / "charts" / "course-tps-sysbench.svg", out / "over-time.svg")


def import_pair(folder: Path) -> Path:
    """The made-up pair of sysbench's files, imported."""
    subprocess.run([sys.executable, str(ROOT / "examples" / "sysbench_pair.py")], cwd=folder, check=True)
    words = ["import", "sysbench", "off.txt", "on.txt", "--factor", "doublewrite=off,on", "--out", "pair"]
    subprocess.run([*storlab(), *words], cwd=folder, check=True)
    return folder / "pair"


def framed(page: Path, section: str) -> Path:
    """A page that shows another one from that section on."""
    frame = page.with_name(f"from-{section}.html")
    style = "position: fixed; inset: 0; width: 100%; height: 100%; border: 0"
    frame.write_text(f'<!doctype html><iframe src="{page.name}#{section}" style="{style}"></iframe>')
    return frame


def report_of(run: Path) -> Path:
    """The HTML report, written by this version."""
    subprocess.run([*storlab(), "report", str(run), "--format", "html"], check=True, stdout=subprocess.DEVNULL)
    return run / "report.html"


def storlab() -> list[str]:
    """This environment's Storlab."""
    return [sys.executable, "-m", "storlab.cli.main"]


def photograph(chromium: str, page: Path, picture: Path, flags: list[str], scale: float = SCALE) -> None:
    """The top of the page, as it stands in a window of that size."""
    with tempfile.TemporaryDirectory(prefix="storlab-chromium-") as profile:
        fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        shot = [f"--force-device-scale-factor={scale}", f"--screenshot={picture}"]
        command = [chromium, *fixed, *flags, *shot, page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def draw_terminal(run: Path, picture: Path) -> Path:
    """What `storlab report` prints on a terminal, with the command above it."""
    printed = in_terminal([*storlab(), "report", run.name], run.resolve().parent)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), f"storlab report runs/{run.name}"))
    console.print(Text.from_ansi(printed))
    console.save_svg(str(picture), title="storlab")
    return picture


def in_terminal(command: list[str], folder: Path) -> str:
    """All that a command prints on a terminal of ``COLUMNS``, escape sequences and all."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", COLUMNS=str(COLUMNS))
        os.execv(command[0], command)
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    printed = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # EIO: Linux's way of saying that the other side has closed
            break
        if not chunk:
            break
        printed += chunk
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"screenshots: {' '.join(command)} failed:\n{printed.decode(errors='replace')}")
    return printed.decode().replace("\r\n", "\n").rstrip()


if __name__ == "__main__":
    main()
