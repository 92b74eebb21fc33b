"""The options of ``storlab new``, and the order in which things happen."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from storlab.cli.new.asked import Asked, answers_of
from storlab.cli.options import Json, String, offered, studies
from storlab.cli.output import show, warn
from storlab.errors import UserError
from storlab.templates.answers import EXTENTS, LOADS, SUBJECTS


def new(
    name: Annotated[str | None, Argument(metavar="[NAME|FILE]", help="Writes NAME.toml, or FILE.")] = None,
    compare: Annotated[
        String,
        Option("--compare", metavar="WHAT", help=f"{', '.join(SUBJECTS)}.", autocompletion=offered(*SUBJECTS)),
    ] = None,
    on: Annotated[
        String, Option("--on", metavar="file|DEVICE|DIRECTORY", help="A file of Storlab's own, a device, a directory.")
    ] = None,
    size: Annotated[String, Option("--size", metavar="SIZE", help="Size of the file that serves as the disk.")] = None,
    wipe: Annotated[
        String, Option("--wipe", metavar="DEVICE", help="The device's name again, to allow its data to be destroyed.")
    ] = None,
    load: Annotated[
        String, Option("--load", metavar="LOAD", help=f"{', '.join(LOADS)}.", autocompletion=offered(*LOADS))
    ] = None,
    until: Annotated[
        String,
        Option(
            "--until",
            metavar="|".join(EXTENTS),
            help="How precise, or how long.",
            autocompletion=offered(*(word for word in EXTENTS if word != "TIME")),
        ),
    ] = None,
    guests: Annotated[
        int | None, Option("--guests", min=0, help="Number of virtual machines that carry the load; 0: this machine.")
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Ask nothing; use defaults for what is not given.")] = False,
    unchecked: Annotated[
        bool, Option("--unchecked", help="Do not check this machine: the study is for another one.")
    ] = False,
    preset: Annotated[
        String,
        Option("--from", metavar="PRESET", help="Write a preset or a shipped study, to edit.", autocompletion=studies),
    ] = None,
    list_: Annotated[bool, Option("--list", help="List the presets, and write nothing.")] = False,
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Write a study to begin with: from five answers, or from a preset.

    On a terminal, it asks for whatever the options leave open, and checks each answer on this machine as you give it.
    """
    asked = Asked(compare, on, size, wipe, load, until, guests)
    if list_ or preset is not None:
        if asked.given:
            raise UserError(f"{', '.join(asked.given)}: a preset is already a whole study; leave this out")
        from storlab.cli.new import presets

        presets.show_all(json) if list_ else presets.write(preset or "", name, force)
    elif json:
        raise UserError("--json works only with --list")
    else:
        _write(asked, name, Manner(yes, unchecked, force))


@dataclass(frozen=True)
class Manner:
    """How it is done: without questions, without a look at this machine, in the place of another file."""

    yes: bool
    unchecked: bool
    force: bool


def on_a_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _write(asked: Asked, name: str | None, manner: Manner) -> None:
    from storlab.cli.new.looking import Looker
    from storlab.cli.new.writing import refuse_existing, target_of, write_new
    from storlab.templates.stacks import has_file
    from storlab.templates.study import study_text

    interactive = not manner.yes and on_a_terminal()
    if not interactive and not manner.yes:
        asked.refuse_missing()
    if name is not None:
        refuse_existing(target_of(name), manner.force)
    look = Looker(enabled=not manner.unchecked)
    if interactive:
        from storlab.cli.new.asking import ask

        answers = ask(asked, look)
    else:
        answers = answers_of(asked, look)
    if asked.size is not None and not has_file(answers):
        raise UserError(f"--size {asked.size}: there is no file whose size it could be; leave it out")
    file = target_of(name or answers.compare)
    write_new(file, study_text(answers, shlex.quote(str(file))), manner.force)
    show(f"Wrote {file}: {look.in_short(answers)}")
    for lacking in () if interactive else look.lacking:  # who was asked has been told
        warn(f"storlab: not on this machine as it is: {lacking}")
    show(f"Next: `{look.next_command(answers, shlex.quote(str(file)))}`")
