"""``storlab check``: is this directory's disk fast enough? A study without factors, and its verdict."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.options import Json, Quiet, Set, Shared, String, Turn, Wait
from storlab.cli.output import show
from storlab.cli.status import CLAIM_OPEN, COMPLETE, Status

if TYPE_CHECKING:
    from storlab.run.executor import Outcome

_FOLDER = Path(__file__).resolve().parent.parent / "studies" / "checks"
_SECTIONS = ("answer", "claims", "absent")
_IN_MEMORY = ("tmpfs", "ramfs")


def _names(incomplete: str) -> list[str]:
    return [path.stem for path in sorted(_FOLDER.glob("*.toml")) if path.stem.startswith(incomplete)]


def check(
    name: Annotated[
        str, Argument(metavar="NAME", help=f"What is to be checked: {', '.join(_names(''))}.", autocompletion=_names)
    ],
    directory: Annotated[
        Path, Option("--dir", metavar="DIR", help="Where: an existing directory, such as /var/lib/etcd.")
    ] = Path(),
    below: Annotated[String, Option("--below", metavar="LIMIT", help="Another limit than the first claim's.")] = None,
    set_: Set = None,
    out: Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for the records.")] = None,
    printed: Annotated[bool, Option("--print", help="Print the study that this runs, and run nothing.")] = False,
    wait: Wait = False,
    shared: Shared = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Check whether a directory's disk is fast enough, in a minute.

    It needs no root, writes files of its own into the directory, and removes them. The status is 0 if each claim
    holds, else 4.
    """
    from storlab.cli.reporting import finish
    from storlab.cli.run import RunOptions, run_of
    from storlab.run.limits import Limits

    study = _FOLDER / f"{name}.toml"
    if name not in _names(""):
        raise UserError(f"unknown check {name!r}: write one of {', '.join(_names(''))}")
    if printed:
        show(study.read_text().rstrip())
        return
    place = directory.resolve()
    if not place.is_dir():
        raise UserError(f"--dir {directory}: there is no such directory; make it first, or name another")
    _refuse_memory(place)
    limit = [] if below is None else [f"claim.0.below={below}"]
    options = RunOptions(
        *(str(study), [f"dir={place}", *limit, *(set_ or [])], []),
        of=None,
        assignment=None,
        out=out,
        build=False,
        unconfined=False,
        limits=Limits(),
        allow_undecided=False,
        optional=[],
        turn=Turn(wait, shared),
        quiet=quiet,
        json=json,
    )
    outcome = run_of(options)
    if isinstance(outcome, int):
        raise typer.Exit(outcome)
    raise typer.Exit(finish(outcome, json, only=_SECTIONS) or _status(outcome))


def _status(outcome: Outcome) -> Status:
    verdicts = {claim.verdict for claim in outcome.summary.claims}
    return COMPLETE if verdicts == {"holds"} else CLAIM_OPEN


def _refuse_memory(place: Path) -> None:
    """Raise ``UserError`` for a directory whose files no fdatasync(2) brings to any disk."""
    asked = ["stat", "--file-system", "--format=%T", "--", str(place)]
    kind = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if kind in _IN_MEMORY:
        raise UserError(f"--dir {place}: its files are in memory ({kind}), and on no disk")
