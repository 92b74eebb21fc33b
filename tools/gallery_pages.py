"""The gallery in docs/gallery: a page for each preset and shipped study, from the study and from what its run left.

``python -m tools.gallery_pages`` writes the pages again; ``scripts/gallery.py`` runs studies and makes the pictures.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

import msgspec

from storlab.study.study import load_study, preset_studies, shipped_studies

ROOT = Path(__file__).resolve().parent.parent
GALLERY = ROOT / "docs" / "gallery"
RUNS = GALLERY / "runs.json"
PICTURES = GALLERY / "images"

_WRITTEN = (
    "<!-- Written by `python -m tools.gallery_pages`; change the study, runs.json, or tools/gallery_pages.py. -->"
)


_GALLERY = """
Every preset and every study that ships with Storlab: what it asks, the study, the top of a report, and how long that
took. The reports are of a small virtual machine with other work beside: they show what a report looks like, and not how
fast anything is.
"""

_PRESETS = """
Loads that the field knows by name, small enough to try, to be edited: `storlab new --from NAME` writes one out,
`storlab run NAME` runs it as it is. The studies below each answer one question; a preset is where a study of yours
begins.
"""

_STUDIES = """
Each answers one question, chosen and sized so that it has an answer on most machines; how to read it is in the how-to
guides. `storlab list` shows them, `storlab run NAME` runs them.
"""


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run that a picture shows: ``command`` as it was given, ``seconds`` from its start to its report.

    ``says``: for its reader, what the run can't show.
    """

    command: str
    seconds: float
    rounds: int
    trials: int
    machine: str
    says: str = ""


class Gallery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``runs.json`` holds, by study: the runs, and of others why there is no picture, a sentence."""

    runs: dict[str, Run] = {}
    not_run: dict[str, str] = {}


def read_gallery(path: Path = RUNS) -> Gallery:
    """What was run so far."""
    return msgspec.json.decode(path.read_bytes(), type=Gallery) if path.exists() else Gallery()


def write_gallery(gallery: Gallery, path: Path = RUNS) -> None:
    """By name, so that differences are readable."""
    ordered = Gallery(dict(sorted(gallery.runs.items())), dict(sorted(gallery.not_run.items())))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n")


def pages(gallery: Gallery) -> dict[str, str]:
    """File → text of all pages."""
    presets, shipped = preset_studies(), shipped_studies()
    texts = {f"{name}.md": _page(name, path, gallery) for name, path in {**presets, **shipped}.items()}
    return {"index.md": _index(presets, shipped, gallery), **texts}


def _index(presets: Mapping[str, Path], shipped: Mapping[str, Path], gallery: Gallery) -> str:
    lines = [
        _WRITTEN,
        "# Gallery",
        "",
        *_filled(_GALLERY),
        "",
        "## Presets",
        "",
        *_filled(_PRESETS),
        "",
        *_table(presets, gallery),
        "",
        "## Studies",
        "",
        *_filled(_STUDIES),
        "",
        *_table(shipped, gallery),
    ]
    return "\n".join(lines) + "\n"


def _filled(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 130, break_on_hyphens=False)


def _table(studies: Mapping[str, Path], gallery: Gallery) -> list[str]:
    rows = [
        f"| [`{name}`]({name}.md) | {load_study(path).model.title} | {_took(gallery.runs.get(name))} |"
        for name, path in studies.items()
    ]
    return ["| | asks | took |", "| --- | --- | --- |", *rows]


def _page(name: str, path: Path, gallery: Gallery) -> str:
    study = load_study(path)
    ran = gallery.runs.get(name)
    lines = [_WRITTEN, f"# {study.model.title}", "", *_about(study.text), ""]
    if ran is not None:
        lines += [f"![The top of a report of {name}](images/{name}.png)", "", *_of(ran), ""]
    else:
        why = gallery.not_run.get(name, "It was not run for this gallery.")
        lines += [f"No picture: {why}", ""]
    lines += ["## The study", "", f"```toml {path.relative_to(ROOT)}", study.text.rstrip("\n"), "```"]
    return "\n".join(lines) + "\n"


def _about(text: str) -> list[str]:
    """The comment that a study begins with, as prose; the commands in it as code."""
    comment = re.match(r"(?:#.*\n)+", text)
    lines = [line.removeprefix("#").removeprefix(" ") for line in (comment[0] if comment else "").splitlines()]
    return [f"    {line.strip()}" if line.startswith("  ") else line for line in _spaced(lines)]


def _spaced(lines: list[str]) -> list[str]:
    """An empty line before and after what is indented."""
    found: list[str] = []
    for line in lines:
        if found and line.startswith("  ") != found[-1].startswith("  "):
            found.append("")
        found.append(line)
    return found


def _of(ran: Run) -> list[str]:
    rounds = f"{ran.rounds} rounds" if ran.rounds != 1 else "a single round"
    took = f"`{ran.command}` took {_took(ran)}: {rounds}, {ran.trials} trials, on {ran.machine}."
    return [took, *([ran.says] if ran.says else [])]


def _took(ran: Run | None) -> str:
    if ran is None:
        return "not run"
    return f"{ran.seconds:.0f} s" if ran.seconds < 100 else f"{ran.seconds / 60:.0f} min"


def main() -> None:
    """Write all pages."""
    for file, text in pages(read_gallery()).items():
        (GALLERY / file).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
