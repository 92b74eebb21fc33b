"""``storlab new``: a study to begin with, from options or from answers on a terminal, or a preset to edit."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Argument, Option

from storlab.base.errors import MissingImage, MissingTool, StudyError, UserError
from storlab.cli.options import Json, String, offered, print_json, studies
from storlab.cli.output import show, warn
from storlab.new.answers import EXTENTS, LOADS, SUBJECTS, TARGETS, Answers, place_of, study_text

if TYPE_CHECKING:
    from storlab.run.planning.plan import Plan

T = TypeVar("T")

_DIRECTORY = "/var/tmp"
"""What is offered to those who may not make a loop device."""
_IN_A_DIRECTORY = ("safety", "queue-depths", "block-sizes", "nothing")
"""What can be compared in a directory as well as on a disk."""


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
    options = {"compare": compare, "on": on, "load": load, "until": until, "guests": guests, "size": size, "wipe": wipe}
    given = {option: value for option, value in options.items() if value is not None}
    if list_ or preset is not None:
        if given:
            named = ", ".join(f"--{option}" for option in given)
            raise UserError(f"{named}: a preset is already a whole study; leave this out")
        _show_presets(json) if list_ else _write_preset(preset or "", name, force)
        return
    if json:
        raise UserError("--json works only with --list")
    asks = not yes and on_a_terminal()
    missing = [f"--{option}" for option in ("compare", "on", "load", "until", "guests") if option not in given]
    if missing and not (asks or yes):
        raise UserError(
            f"cannot ask, as this is not a terminal, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            "missing: give them (see `storlab new --help`), add --yes for defaults, or run it in a terminal"
        )
    if name is not None:
        _refuse_existing(_target(name), force)
    look = Looker(enabled=not unchecked)
    answers = _ask(given, look) if asks else _answers_of(given, look)
    if size is not None and not answers.has_file:
        raise UserError(f"--size {size}: there is no file whose size it could be; leave it out")
    file = _target(name or answers.compare)
    quoted = shlex.quote(str(file))
    _write(file, study_text(answers, quoted), force)
    show(f"Wrote {file}: {look.in_short(answers)}")
    for lacking in () if asks else look.lacking:  # whoever was asked has been told
        warn(f"storlab: not on this machine as it is: {lacking}")
    show(f"Next: `{look.next_command(answers, quoted)}`")


def on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _usual_subject() -> str:
    """File systems, or what those who may not mount one can compare."""
    return "file-systems" if os.geteuid() == 0 else _IN_A_DIRECTORY[0]


def _usual_place(compare: str) -> str:
    """A file of Storlab's own; if only root could set that up, a directory, if one will do."""
    return _DIRECTORY if os.geteuid() != 0 and compare in _IN_A_DIRECTORY else "file"


def _answers_of(given: Mapping[str, Any], look: Looker) -> Answers:
    """Those of options and defaults, looked at. Raises ``UserError``."""
    compare = given.get("compare") or _usual_subject()
    target, path = place_of(given.get("on") or _usual_place(compare))
    others = {option: value for option, value in given.items() if option != "on"}
    answers = Answers(**{**others, "compare": compare, "target": target, "path": path})
    if reason := look.is_occupied(answers):
        raise UserError(f"{reason} Add --wipe {path} if that is what you want")
    look.check(answers)
    return answers


def _ask(given: Mapping[str, Any], look: Looker) -> Answers:
    """Ask for what the options leave open, each answer looked at as it is given. Raises ``UserError`` for options."""
    from rich.text import Text

    from storlab.cli.console import Console

    console, said = Console(stderr=True), set[str]()

    def choose(words: str, read: Callable[[str], T], default: str, choices: Mapping[str, str]) -> T:
        console.print()
        names = list(choices)
        for number, name in enumerate(names, start=1):
            shown = f"{name:<{max(map(len, names))}}"
            console.print(Text.assemble(f"  {number}  ", (shown, "cyan"), f"  {choices[name]}"))
        return ask(words, read, default, names)

    def ask(words: str, read: Callable[[str], T], default: str, names: Sequence[str] = ()) -> T:
        """Until ``read`` takes the answer; a number stands for one of ``names``."""
        prompt = Text.assemble((words, "bold"), f" [{default}]: " if default else ": ")
        while True:
            answer = console.input(prompt).strip() or default
            if answer.isdecimal() and 1 <= int(answer) <= len(names):
                answer = names[int(answer) - 1]
            try:
                return read(answer)
            except UserError as error:
                console.print(Text(str(error), style="red"))

    def taken(answers: Answers) -> Answers:
        look.check(answers)
        for lacking in [each for each in look.lacking if each not in said]:
            said.add(lacking)
            console.print(Text(f"  not on this machine as it is: {lacking}", style="yellow"))
        return answers

    def located(on: str) -> Answers:
        target, path = place_of(on)
        size, wipe = given.get("size", answers.size), given.get("wipe", "")
        placed = replace(answers, target=target, path=path, wipe=wipe, size=size)
        if (reason := look.is_occupied(placed)) is None:
            return taken(placed)
        console.print(Text(reason, style="yellow"))
        words = "Type its name again to allow that, or press Enter to choose another"
        allowed = ask(words, lambda name: taken(replace(placed, wipe=name)) if name else None, "")
        if allowed is None:
            raise UserError("choose another, then")
        return allowed

    def place(word: str) -> Answers:
        if word == "file":
            size = given.get("size", answers.size)
            return ask("   How large?", lambda size: taken(replace(answers, size=size)), size)
        if word in TARGETS:
            return ask(f"   Path of the {word}", located, _DIRECTORY if word == "directory" else "")
        return located(word)

    console.print("Five questions make a study. Enter accepts the answer in brackets, Ctrl-C writes nothing.")
    try:
        if "compare" in given:
            answers = Answers(given["compare"])
        else:
            says = {name: subject.says for name, subject in SUBJECTS.items()}
            answers = choose("1. What do you want to compare?", Answers, _usual_subject(), says)
        subject = SUBJECTS[answers.compare]
        if "on" in given:
            options = {option: value for option, value in given.items() if option in ("on", "size", "wipe")}
            answers = taken(_answers_of({**options, "compare": answers.compare}, look))
        else:
            usual = "directory" if _usual_place(answers.compare) == _DIRECTORY else "file"
            answers = choose("2. On what?", place, usual, TARGETS)
        if "load" in given:
            answers = replace(answers, load=given["load"])
        else:
            says = {name: LOADS[name].says for name in subject.loads}
            words = "3. Under which load?"
            answers = choose(words, lambda load: replace(answers, load=load), subject.loads[0], says)
        if "until" in given:
            answers = replace(answers, until=given["until"])
        else:
            how = "4. How precise, or how long?"
            answers = choose(how, lambda until: replace(answers, until=until), "decided", EXTENTS)
        least, most = subject.guests
        if "guests" in given or least == most:
            return taken(replace(answers, guests=given.get("guests", least)))
        words = "5. How many virtual machines?" if least else "5. In how many virtual machines? 0: on this machine"
        return ask(words, lambda text: taken(replace(answers, guests=_number(text))), str(answers.guests))
    except EOFError:  # Ctrl-D
        console.print()
        raise KeyboardInterrupt from None


def _number(text: str) -> int:
    if not text.isdecimal():
        raise UserError(f"{text}: enter a number")
    return int(text[:9])


@dataclass
class Looker:
    """What this machine says to answers, by a plan of the study that they make: nothing is run or changed.

    ``lacking``: what of the last answers this machine can't do as it is. ``enabled``: else it looks at nothing.
    """

    enabled: bool = True
    lacking: tuple[str, ...] = ()
    cells: int = 0
    supported: int = 0
    needs_image: bool = False
    time: str = ""
    options: str = ""  # that allow what the answers name, a device or a directory

    def check(self, answers: Answers) -> None:
        """Raises ``UserError`` for answers that can't be: a device in use, no such directory, more than is free."""
        import asyncio

        from storlab.run.planning.wants import wants_of
        from storlab.study.study import parse_study

        study = parse_study(study_text(answers).encode(), "study.toml", _no_files)
        self.cells = self.supported = len(study.cells)
        self.lacking, self.needs_image, self.time = (), False, ""
        wants = wants_of(study, None)
        self.options = "".join(f" {want.option}" for want in wants)
        if not self.enabled:
            return
        from storlab.run.beginning import new_run_id
        from storlab.run.permissions import Permissions
        from storlab.run.planning.plan import make_plan
        from storlab.run.session import open_session

        async def look() -> Plan:
            everything = frozenset(want.permission for want in wants)  # the user's own answers
            async with open_session(new_run_id(), permissions=Permissions(allowed=everything)) as session:
                return await make_plan(study, session, 0, (study.model.repeat.min, study.model.repeat.max))

        try:
            plan = asyncio.run(look())
        except (MissingImage, MissingTool) as error:
            self.lacking, self.supported = (str(error),), 0
            self.needs_image = isinstance(error, MissingImage)
        except StudyError as error:
            raise UserError("; ".join(dict.fromkeys(problem.message for problem in error.problems))) from None
        else:
            reasons = (reason for found in plan.unsupported.values() for reason in found)
            self.lacking, self.supported = tuple(dict.fromkeys(reasons)), len(plan.supported)
            self.time = _time(plan, answers.minutes)

    def is_occupied(self, answers: Answers) -> str | None:
        """Why a device is refused that its name, written once more, would release."""
        if answers.target != "device" or answers.wipe:
            return None
        try:
            self.check(answers)
        except UserError as error:
            self.check(replace(answers, wipe=answers.path))  # raises what is against it in any case
            return re.sub(r"\s*Write wipe = .*$", "", str(error))  # that is for who has the study before him
        return None

    def next_command(self, answers: Answers, file: str) -> str:
        command = answers.run_command(file)
        if not self.needs_image and not (self.enabled and self.supported):
            command = f"storlab plan {file}"
        return f"{command}{' --build' if self.needs_image else ''}{self.options}"

    def in_short(self, answers: Answers) -> str:
        from storlab.report.language.format import plural

        cells = plural(self.cells, "set-up")
        able = "" if self.supported == self.cells else f", of which {self.supported or 'none'} can run here"
        return f"{answers.title}; {cells}{able}{f'; {self.time}' if self.time and self.supported else ''}"


def _time(plan: Plan, minutes: float | None) -> str:
    from storlab.report.language.format import duration
    from storlab.run.planning.estimates import round_time

    expected = round_time(plan)
    if expected.unknown or not plan.supported:
        return ""
    longest = expected.seconds * plan.rounds[1]
    least, most = (duration(round(seconds)) for seconds in (expected.seconds * plan.rounds[0], longest))
    if minutes is not None and longest > minutes * 60:
        return f"at most {duration(round(minutes * 60))}"
    return f"about {least}" if least == most else f"about {least} to {most}"


def _no_files(name: str) -> str:
    raise ValueError(f"no file {name}")


def _show_presets(json: bool) -> None:
    from storlab.study.study import load_study, preset_studies

    found = {name: load_study(path) for name, path in preset_studies().items()}
    if json:
        print_json({name: {"title": study.model.title, "file": study.file} for name, study in found.items()})
        return
    from storlab.cli.console import show_document
    from storlab.report.document import Document, Fact, Facts, Section, said

    facts = tuple(Fact(name, study.model.title) for name, study in found.items())
    hint = (
        "`storlab new --from PRESET` writes one out to edit, `storlab run PRESET` runs it as it is. The studies that "
        "`storlab list` shows can be written out as well."
    )
    shown = Section("presets", "", (Facts("", (("", facts),)), *said(hint)), titled=False)
    show_document(Document("Presets", (), (shown,)))


def _write_preset(preset: str, name: str | None, force: bool) -> None:
    """Write a preset or a shipped study out, as it is but for commands in comments. Raises ``UserError``."""
    from storlab.study.messages import nearest
    from storlab.study.study import load_study, named_studies

    studies = named_studies()
    if preset not in studies:
        raise UserError(f"unknown preset {preset!r}: {', '.join(studies)}{nearest(preset, studies)}")
    file = _target(name or preset)
    quoted = shlex.quote(str(file))
    _refuse_existing(file, force)
    commands = re.compile(rf"(storlab (?:run|plan) ){re.escape(preset)}")
    lines = studies[preset].read_text("utf-8").splitlines(keepends=True)
    text = "".join(
        commands.sub(lambda found: found[1] + quoted, line) if line.startswith("#") else line for line in lines
    )
    _write(file, text, force)
    show(f"Wrote {file}: {load_study(file).model.title}")
    show(f"Next: `storlab plan {quoted}`")


def _target(name: str) -> Path:
    """``log`` → ``log.toml``; what has an ending, or names a folder, stays as it stands."""
    path = Path(name)
    return path if path.suffix or path.name in ("", "..") or os.path.isdir(path) else path.with_suffix(".toml")  # noqa: PTH112


def _refuse_existing(file: Path, force: bool) -> None:
    """Raise ``UserError`` for what can't be written, before anybody answers questions for it."""
    if os.path.isdir(file):  # noqa: PTH112 - Path.is_dir() raises if a name is too long
        raise UserError(f"{file} is a folder; name a file in it")
    if os.path.lexists(file) and not force:
        raise UserError(f"{file} already exists and was not changed: choose another name, or add --force")
    if not os.path.isdir(file.parent):  # noqa: PTH112
        raise UserError(f"there is no folder {file.parent} to write {file.name} to; create it first, or choose another")


def _write(file: Path, text: str, force: bool) -> None:
    """Write it whole or not at all; unless forced, never in the place of another file. Raises ``UserError``."""
    from storlab.records.files import write_whole

    _refuse_existing(file, force)
    whole = file.with_name(f".storlab-new-{os.getpid()}")
    try:
        write_whole(whole, text.encode())
        if force:
            whole.replace(file)
        else:
            os.link(whole, file)  # which, unlike a rename, replaces nothing that came there meanwhile
    except FileExistsError:
        raise UserError(f"{file} already exists and was not changed: choose another name, or add --force") from None
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
    finally:
        whole.unlink(missing_ok=True)
