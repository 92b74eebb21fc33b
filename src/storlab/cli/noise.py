"""``storlab noise``: what effect can be seen on this machine, with how many rounds of what length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import StorlabError, UserError
from storlab.cli.options import Allow, Json, Quiet, Shared, String, StudyOptions, Turn, Wait, print_json, studies
from storlab.cli.output import show, warn
from storlab.cli.status import INTERRUPTED

if TYPE_CHECKING:
    from storlab.analysis.foresight import Noise
    from storlab.report.document import Document
    from storlab.run.noise import MachineNoise, Trials
    from storlab.run.permissions import Permissions
    from storlab.study.study import Study

ALPHA = 0.05
BUILT_IN_NAME = "the built-in load"
TOO_SOON = "storlab: interrupted too soon to say anything; nothing is left of it"


def noise(
    study: Annotated[
        String, Argument(metavar="[STUDY]", help="Its first cell; without, a short fio load.", autocompletion=studies)
    ] = None,
    for_: Annotated[str, Option("--for", metavar="TIME", help="How long, such as 5m.")] = "1m",
    in_: Annotated[Path | None, Option("--in", metavar="DIR", help="Where its files lie.")] = None,
    allow: Allow = None,
    wait: Wait = False,
    shared: Shared = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure the noise of this machine: A against A.

    Says what difference can be seen here, with how many rounds of what length.
    """
    from storlab.analysis.foresight import noise_of
    from storlab.base.units import parse_duration
    from storlab.run.noise import MachineNoise, now, save, this_machine

    try:
        seconds = parse_duration(for_)
    except ValueError as error:
        raise UserError(f"--for {for_}: {error}") from None
    chosen, permissions = _study(study, in_, tuple(allow or ()))
    with Turn(wait, shared).on_machine("storlab noise"):
        trials = _measure(chosen, permissions, seconds, quiet or json)
    try:
        found = noise_of(trials.values)
    except ValueError as error:
        if trials.interrupted:
            raise _too_soon() from None
        raise UserError(f"the noise cannot be derived from {chosen.model.primary}: {error}") from None
    what = (study or BUILT_IN_NAME, chosen.model.title, chosen.model.primary)
    measured = MachineNoise(this_machine(), now(), *what, trials.seconds, trials.overhead, trials.values)
    file = save(measured)
    if json:
        print_json(_as_dict(measured, found) | {"file": str(file)})
    else:
        from storlab.cli.console import show_document

        show_document(_document(measured, found))
        show(f"Kept for `storlab plan`: {file}")
    raise typer.Exit(INTERRUPTED if trials.interrupted else 0)


def _measure(study: Study, permissions: Permissions, seconds: float, quiet: bool) -> Trials:
    """Trials of it for so long. Raises ``StorlabError`` where something is left of them."""
    import asyncio

    from storlab.cli.progress import observer
    from storlab.run.noise import measure

    with _folder() as folder, observer(quiet) as watching:
        try:
            trials = asyncio.run(measure(study, study.model.primary, seconds, folder, watching, permissions))
        except asyncio.CancelledError:  # between its runs, when nothing stands
            raise _too_soon() from None
        if trials.left_behind:
            raise StorlabError(f"could not be torn down: {'; '.join(trials.left_behind)}; `storlab clean` tries again")
    return trials


def _too_soon() -> typer.Exit:
    warn(TOO_SOON)
    return typer.Exit(INTERRUPTED)


@contextmanager
def _folder() -> Iterator[Path]:
    """For the runs. It stays where something may still stand, as its journals say, until ``storlab clean``."""
    import shutil

    from storlab.run.recovery.temporary import stands_in, temporary_folder

    with temporary_folder("storlab-noise-") as folder:
        try:
            yield folder
        finally:
            if not stands_in(folder):
                shutil.rmtree(folder)


def _study(name: str | None, directory: Path | None, allow: tuple[str, ...]) -> tuple[Study, Permissions]:
    """One cell: the first of a study, or the built-in load. ``directory``: where the load's files are to lie."""
    import json as json_module

    from storlab.run.noise import BUILT_IN
    from storlab.study.study import find_study, load_study, parse_study

    overrides = [] if directory is None else [f"scratch={json_module.dumps(str(directory.resolve()))}"]
    if directory is not None and not directory.is_dir():
        raise UserError(f"--in {directory}: there is no such directory")
    if directory is not None and not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"--in {directory}: nothing can be written there")
    if name is None:
        built_in = parse_study(BUILT_IN.encode(), BUILT_IN_NAME, _no_file, overrides)
        return built_in, StudyOptions(BUILT_IN_NAME, overrides, [], allow=allow).permissions(built_in)
    study = load_study(find_study(name), overrides)
    if directory is not None:
        _refuse_own_place(study, directory)
    first = [f"{factor}={level}" for factor, level in study.cells[0].levels.items()]
    chosen = load_study(find_study(name), overrides, first)
    return chosen, StudyOptions(name, overrides, first, allow=allow).permissions(chosen)


def _refuse_own_place(study: Study, directory: Path) -> None:
    for layer in (layer for chain in study.cells[0].chains for layer in chain.layers):
        if place := layer.claims() or layer.existing_directory(""):
            change = f"the path of its layer {layer.layer}"
            said = f"this study names {place} itself, so its files lie there: leave --in out, or change {change}"
            raise UserError(f"--in {directory}: {said}")


def _no_file(name: str) -> str:
    raise UserError(f"the built-in load names no file, but asks for {name}")


def _as_dict(measured: MachineNoise, found: list[Noise]) -> dict[str, object]:
    from msgspec import to_builtins

    from storlab.analysis.foresight import EFFECTS, ROUNDS, rounds_to_see, visible, warnings_of

    return asdict(measured) | {
        "noise": [asdict(each) for each in found],
        "rounds": {str(effect): rounds_to_see(effect, found[0].sd, ALPHA) for effect in EFFECTS},
        "effects": {str(n): [visible(each.sd, n, ALPHA) for each in found] for n in ROUNDS},
        "warnings": [to_builtins(warning) for warning in warnings_of(measured.values)],
    }


def _document(measured: MachineNoise, found: list[Noise]) -> Document:
    from storlab.analysis.foresight import EFFECTS, ROUNDS, rounds_to_see, visible, warnings_of
    from storlab.report.document import Document, Section, Table, said
    from storlab.report.language.format import duration, plural
    from storlab.report.language.say import say

    count = plural(len(measured.values), "trial")
    each = f"{count} of the same load, {measured.seconds:.1f} s each including overhead"
    share = f"{measured.metric} differs by {100 * found[0].sd:.1f} % between successive trials"
    lengths = ["trials as long" if each.length == 1 else f"{each.length} times as long" for each in found]
    effects = [(str(n), *(_percent(visible(each.sd, n, ALPHA)) for each in found)) for n in ROUNDS]
    effects += [("noise", *(_percent(each.sd) for each in found)), ("from", *(f"{each.pairs} pairs" for each in found))]
    rounds = []
    for effect in EFFECTS:
        n = rounds_to_see(effect, found[0].sd, ALPHA)
        time = "–" if n is None else f"about {duration(round(2 * n * measured.seconds))}"
        rounds.append((_percent(effect), "more than 10000" if n is None else str(n), time))
    tables = (
        Table("The smallest difference that can be seen", ("rounds", *lengths), tuple(effects)),
        Table("What it takes to see a difference", ("difference", "rounds", "time, two set-ups"), tuple(rounds)),
    )
    head = (
        *said(f"{each}; {share} (standard deviation of the log ratio)."),
        *said(*(f"Warning: {say(warning)}" for warning in warnings_of(measured.values)), tone="missing"),
    )
    section = Section(
        "noise",
        "",
        (*tables, *said("For one comparison of two set-ups at 95 %, if the noise stays as it was.")),
        titled=False,
    )
    return Document(f"Noise of this machine: {measured.title}", head, (section,))


def _percent(share: float | None) -> str:
    if share is None:
        return "–"
    if share >= 10:
        return f"{1 + share:.0f}×"
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
