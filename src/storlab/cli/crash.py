"""``storlab crash``: what a power cut would leave of what a study's load was promised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from storlab.base.errors import UserError
from storlab.cli.options import (
    Allow,
    Json,
    Only,
    Quiet,
    Seed,
    Set,
    Shared,
    StudyName,
    StudyOptions,
    Turn,
    Wait,
    print_json,
)
from storlab.cli.output import warn
from storlab.cli.status import COMPLETE, CUT_BROKE, INTERRUPTED, NOT_CHECKED, Status

if TYPE_CHECKING:
    from storlab.crash.results import CrashResult, SetUp
    from storlab.crash.run import Asked
    from storlab.report.document import Document, Line
    from storlab.study.study import Study


_MOMENTS = 30
_UNITS = {"512": 512, "4k": 4096, "16k": 16384}


@dataclass(frozen=True, kw_only=True)
class CrashOptions(StudyOptions):
    """What ``storlab crash`` was asked for. ``moments``, ``unit``: ``None`` where the study says, or nobody."""

    moments: int | None
    unit: str | None
    out: Path | None
    keep: bool
    build: bool
    turn: Turn
    quiet: bool
    json: bool

    def asked(self, study: Study) -> Asked:
        """With a seed of its own where none was given."""
        import random

        from storlab.crash.run import Asked

        crash = next((cell.crash for cell in study.cells if cell.crash is not None), None)
        moments = self.moments or (_MOMENTS if crash is None else crash.moments)
        unit = _UNITS[self.unit or "512"] if self.unit or crash is None else crash.unit
        seed = self.seed if self.seed is not None else random.SystemRandom().randrange(2**32)
        return Asked(moments, unit, seed, self.keep)


def crash(
    study: StudyName,
    moments: Annotated[
        int | None, Option("--moments", min=1, max=10_000, help="Power cuts of each set-up; by default 30.")
    ] = None,
    seed: Seed = None,
    unit: Annotated[
        str | None, Option("--unit", help="What the disk writes whole or not at all: 512, 4k or 16k; by default 512.")
    ] = None,
    set_: Set = None,
    only: Only = None,
    allow: Allow = None,
    out: Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for what is found.")] = None,
    keep: Annotated[
        bool, Option("--keep", help="Keep the log, and each set-up's first image that a cut broke.")
    ] = False,
    build: Annotated[bool, Option("--build", help="Build the guest images that it needs, where absent.")] = False,
    wait: Wait = False,
    shared: Shared = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Cut the power of a study's set-ups, and check what is left.

    All writes are logged underneath a virtual machine's disk; at many moments, what was not flushed is lost or torn.
    The status is 0 where all was recovered, 4 where something broke, 3 where a set-up could not be checked.
    """
    if unit is not None and unit not in _UNITS:
        raise UserError(f"--unit {unit}: a disk writes 512 bytes, 4k or 16k at once; write one of {', '.join(_UNITS)}")
    options = CrashOptions(
        *(study, set_ or [], only or [], None, seed),
        moments=moments,
        unit=unit,
        out=out,
        keep=keep,
        build=build,
        allow=tuple(allow or ()),
        turn=Turn(wait, shared),
        quiet=quiet or json,
        json=json,
    )
    raise typer.Exit(_crash(options))


def _crash(options: CrashOptions) -> int:
    import asyncio

    from storlab.cli.image import build_images
    from storlab.cli.options import new_folder
    from storlab.cli.progress import observer
    from storlab.crash.run import RECORDS, crash_check

    loaded = options.load()
    if options.build and (status := build_images(loaded, options.quiet)):
        return status
    folder = options.out or new_folder(f"crash-{Path(loaded.file).stem}")
    with options.turn.on_machine(folder), observer(options.quiet) as watching:
        try:
            permissions = options.permissions(loaded)
            result = asyncio.run(crash_check(loaded, folder, options.asked(loaded), watching, permissions))
        except asyncio.CancelledError:
            warn("storlab: interrupted; everything is torn down")
            return INTERRUPTED
    if options.json:
        print_json(result.as_dict())
    else:
        from storlab.cli.console import show_document

        show_document(document(result, folder))
    for reason in result.left_behind:
        warn(f"storlab: could not be torn down: {reason}; `storlab clean {folder / RECORDS}` tries again")
    return status_of(result)


def status_of(result: CrashResult) -> Status:
    """3 where a set-up could not be checked or is not believed, else 4 where something broke, else 0."""
    checked = [each for each in result.set_ups if not each.unsupported]
    if not checked or not all(each.believed for each in checked):
        return NOT_CHECKED
    return CUT_BROKE if any(each.broken for each in checked) else COMPLETE


def document(result: CrashResult, folder: Path) -> Document:
    """The result for people: controls first, then what was counted."""
    from storlab.report.document import Document, Section, Sentences, Table, said

    columns = ("set-up", "moments", "at risk", "broken", "95 % interval")
    table = Table("", columns, tuple(map(_row, result.set_ups)), words=columns[3:])
    first, words = [], []
    for each in result.set_ups:
        if each.believed and (broken := each.first_broken) is not None and broken.broken is not None:
            first.append(f"First broken of {each.name}: moment {broken.number}: {broken.broken.reason}")
        if each.believed and each.early:
            first.append(
                f"{each.name} acknowledges early, as its settings allow: a cut that lost nothing broke it, too "
                f"({each.early}). Its durable twin passed the controls in its place."
            )
    if sound := [each for each in result.set_ups if each.believed and not each.broken]:
        most = max(each.interval[1] for each in sound)
        words.append(
            f"Nothing broke in {', '.join(each.name for each in sound)}. That does not mean safe: up to "
            f"{most:.1%} of the moments may still break it."
        )
    words.append(
        "At risk: moments at which something was not flushed yet; at the others, a power cut had nothing to lose."
    )
    words.append(
        f"Seed {result.seed}; a disk that writes {result.unit} bytes atomically. Everything is in {folder}; limits of "
        "such a check: docs/explanation/crash-checks.md."
    )
    controls = Section("controls", "Controls", (Sentences(tuple(map(_controls, result.set_ups))),))
    cuts = Section("cuts", "Power cuts", (table, *said(*first), *said(*words)))
    return Document("What a power cut leaves", (), (controls, cuts))


def _controls(each: SetUp) -> Line:
    """How many were passed; each that failed, with what happened."""
    from storlab.report.document import Line

    passed = (
        f"{sum(control.passed for control in each.controls)} of {len(each.controls)} passed" if each.controls else ""
    )
    failure = f"{'unsupported' if each.unsupported else 'not checked'}: {each.failure}" if each.failure else ""
    failed = tuple(
        Line(f"FAILED: {control.name}{f': {control.detail}' if control.detail else ''}", tone="hit")
        for control in each.controls
        if not control.passed
    )
    return Line(f"{each.name}: {'; '.join(filter(None, (failure, passed)))}", "·", under=failed)


def _row(each: SetUp) -> tuple[str, ...]:
    if not each.believed:
        why = "unsupported" if each.unsupported else "not checked" if each.failure else "not trusted: a control failed"
        return each.name, "-", "-", "-", why
    low, high = each.interval
    kinds = ", ".join(f"{count} {kind}" for kind, count in each.kinds.items())
    broken = f"{each.broken} ({kinds})" if kinds else "0"
    return each.name, str(len(each.cuts)), str(each.at_risk), broken, f"{low:.1%} to {high:.1%}"
