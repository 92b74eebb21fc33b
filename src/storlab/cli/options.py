"""Arguments and options that several commands have, and what they say together of the study that is wanted.

This module is loaded by ``storlab --help``, as are those of all commands: what takes time to load, functions load.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.output import show_json, waiting
from storlab.report.formats import Format, names

if TYPE_CHECKING:
    from typer.models import OptionInfo

    from storlab.lab import Lab
    from storlab.run.permissions import Permissions
    from storlab.study.study import Study


def studies(incomplete: str) -> list[str]:
    """Names of shipped studies and presets that begin so, for shell completion."""
    folder = Path(__file__).resolve().parent.parent / "studies"
    return [path.stem for path in sorted(folder.rglob("*.toml")) if path.stem.startswith(incomplete)]


String = str | None
Strings = list[str] | None
"""Of options that may be left out; short, so that an option is a line."""


def offered(*names: str) -> Callable[[str], list[str]]:
    """For shell completion: those of ``names`` that begin so."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def format_option(*formats: Sequence[Format]) -> OptionInfo:
    """``--format``: the first of ``formats`` are named in the help, and all of them offered for completion."""
    first, offers = names(formats[0]), [name for several in formats for name in names(several)]
    shown = Option("--format", "-f", metavar="|".join(first), autocompletion=offered(*offers), help="Format.")
    return cast("OptionInfo", shown)


Output = Annotated[
    Path | None, Option("--output", "-o", "--out", metavar="FILE", help="Write it to a file, rather than show it.")
]
"""Of commands that report. ``--out`` is where a run's folder goes for others, and the same as ``--output`` here."""

StudyName = Annotated[
    str, Argument(metavar="STUDY", help="A shipped study's name, or a study file.", autocompletion=studies)
]
RunPath = Annotated[Path, Argument(metavar="RUN", help="A run's folder.")]
Set = Annotated[
    Strings, Option("--set", metavar="PATH=VALUE", help="Change a parameter or any key: size=1G, repeat.max=10.")
]
Only = Annotated[Strings, Option("--only", metavar="FACTOR=LEVEL[,LEVEL]", help="Only these levels of a factor.")]
Rounds = Annotated[int | None, Option("--rounds", min=1, help="Exactly this many rounds.")]
Seed = Annotated[int | None, Option("--seed", min=0, help="Seed for the order of trials and random offsets.")]
FailOn = Annotated[
    Strings,
    Option(
        "--fail-on",
        metavar="GATE",
        help="Exit with status 4 unless this is ruled out: worse, 'worse>3%', better, differs, undecided, missing.",
    ),
]
AllowUndecided = Annotated[bool, Option("--allow-undecided", help="Count a gate that is still undecided as passed.")]
Optional = Annotated[
    Strings,
    Option("--optional", metavar="FACTOR=LEVEL[,LEVEL]", help="Gates ask nothing of these levels if unsupported here."),
]
Allow = Annotated[
    Strings,
    Option(
        "--allow",
        metavar="WORD=VALUE",
        help="Let it have code=, device=, write=, read=PATH, listen=ADDRESS, kernel=NAME, host=NAME, as --wants lists.",
    ),
]
Wait = Annotated[bool, Option("--wait", help="Wait for another run on this machine to end.")]
Shared = Annotated[bool, Option("--shared", help="Run beside others on this machine that are --shared, too.")]
LabPath = Annotated[
    Path | None,
    Option("--lab", metavar="FILE", help="The lab: a lab.toml or an Ansible inventory; by default $STORLAB_LAB."),
]
ChosenHosts = Annotated[
    list[str] | None, Argument(metavar="[HOST|GROUP]...", help="Hosts and groups of the lab; by default all.")
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress, only the result.")]
Json = Annotated[bool, Option("--json", help="The result as JSON on standard output.")]


def lab_of(given: Path | None) -> Lab:
    """The lab that the command line names, or else the environment. Raises ``UserError`` if neither does."""
    from storlab.lab import VARIABLE, read_lab

    path = str(given) if given is not None else os.environ.get(VARIABLE)
    if not path:
        raise UserError(f"which lab? Write --lab FILE, or set {VARIABLE}: a lab.toml or an Ansible inventory")
    return read_lab(path)


@dataclass(frozen=True)
class StudyOptions:
    """A study by its name, and how it is to be changed: ``overrides`` and ``only`` as they were written."""

    name: str
    overrides: list[str]
    only: list[str]
    rounds: int | None = None
    seed: int | None = None
    lab: Path | None = None
    allow: tuple[str, ...] = ()

    def load(self) -> Study:
        from storlab.study.study import find_study, load_study

        with waiting(f"reading {self.name}"):
            return load_study(find_study(self.name), self.overrides, self.only, lambda: _machines(self.lab))

    def permissions(self, study: Study, *, unconfined: bool = False) -> Permissions:
        """What this command line lets a study do that it has loaded. Raises ``UserError``."""
        from storlab.run.permissions import Permissions, parse_allowed
        from storlab.study.machines import LAB
        from storlab.study.overrides import texts_set

        given = {*texts_set(self.overrides), *_named_by(study.inputs.get(LAB))}
        return Permissions(unconfined, parse_allowed(self.allow), frozenset(given), Path(study.file).parent)

    def rounds_of(self, study: Study) -> tuple[int, int]:
        """Rounds at least and at most: ``--rounds`` means exactly so many."""
        repeat = study.model.repeat
        return (repeat.min, repeat.max) if self.rounds is None else (self.rounds, self.rounds)


@dataclass(frozen=True)
class Turn:
    """How a command comes by this machine, which one run has at a time."""

    wait: bool = False
    shared: bool = False

    def on_machine(self, run: str | Path) -> AbstractContextManager[None]:
        """Within, this machine is the run's. Raises ``UserError`` if it is another's."""
        from storlab.cli.output import warn
        from storlab.run.machine import machine_for

        return machine_for(str(run), warn, wait=self.wait, shared=self.shared)


@cache  # its commands are run once
def _machines(lab: Path | None) -> str:
    """The machines of the lab that a study refers to. Raises ``UserError``."""
    from storlab.study.machines import machines_text

    return machines_text(lab_of(lab).machines)


def _named_by(machines: str | None) -> Iterator[str]:
    """What the user's own lab says of its machines: how ssh reaches them, their disks, folders and addresses."""
    import json

    hosts = json.loads(machines).get("hosts", {}) if machines else {}
    yield from (name for name, host in hosts.items() if "ssh" not in host)
    yield from (value for host in hosts.values() for value in host.values() if isinstance(value, str))


def print_json(data: object) -> None:
    """For programs, on standard output."""
    import json

    show_json(json.dumps(data, indent=2, ensure_ascii=False))


def new_folder(study: str) -> Path:
    """Where a run's records go if nobody says: ``runs/NAME-TIME`` in the current folder."""
    from datetime import datetime

    name = f"{study}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path("runs") / name
    number = 2
    while folder.exists():
        folder = Path("runs") / f"{name}-{number}"
        number += 1
    return folder
