"""The options ``--on`` and ``--tied``, for every command that can run on another machine.

They are added to a command from outside, so that commands need not know of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.options import Json, Quiet
from storlab.cli.remote.travel import RULES, Rule

if TYPE_CHECKING:
    from storlab.remote.host import Host, Known


On = Annotated[str | None, Option("--on", metavar="HOST", help="Run it on another machine, by its name for ssh.")]
Tied = Annotated[bool, Option("--tied", help="With --on: it ends with the connection.")]


def travels(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command, ``name`` with its group's, run here or with ``--on`` on another machine."""
    rule = RULES[name]

    def extended(command: Callable[..., None]) -> Callable[..., None]:
        def here_or_there(**values: Any) -> None:
            context: typer.Context = values.pop("context")
            host, tied = values.pop("on"), values.pop("tied", False)
            if host is None:
                if tied:
                    raise UserError("--tied goes with --on: what runs here ends with its terminal anyway")
                _refuse_elsewhere(name, rule, values)
                command(**values)
                return
            from storlab.cli.remote.session import run_elsewhere

            known = {each.name: each for each in context.command.params}
            given = [
                (known[key], value)
                for key, value in values.items()
                if (source := context.get_parameter_source(key)) is not None and source.name == "COMMANDLINE"
            ]
            raise typer.Exit(run_elsewhere(name, given, host, tied=tied))

        hints = get_type_hints(command, include_extras=True)
        of_command = inspect.signature(command, eval_str=True).parameters.values()
        more = [_parameter("on", On, None), *([_parameter("tied", Tied, False)] if rule.measures else [])]
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in of_command]
        here_or_there.__signature__ = inspect.Signature([*parameters, *more, context])  # type: ignore[attr-defined]
        here_or_there.__annotations__ = {
            **hints,
            **{each.name: each.annotation for each in (*more, context)},
        }
        here_or_there.__doc__, here_or_there.__name__ = command.__doc__, command.__name__
        return here_or_there

    return extended


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _refuse_elsewhere(name: str, rule: Rule, values: dict[str, Any]) -> None:
    folder = values.get(rule.run) if rule.run and not rule.output else None
    if folder is None:
        return
    from storlab.remote.host import read_origin

    if (origin := read_origin(Path(folder))) is not None:
        raise UserError(f"{folder} was run on {origin.host}: `storlab {name} {folder} --on {origin.host}`")


# ``storlab attach``: what runs on another machine, or ended there with nobody watching, is shown here.


def attach(
    host: Annotated[str, Argument(metavar="HOST", help="The machine that was named with --on.")],
    folder: Annotated[
        Path | None, Argument(metavar="RUN", help="Which of its runs, by the folder that gets the records.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show what runs on another machine, and fetch its records.

    Or what ended there with nobody watching. It is shown from its beginning; records that are here already are not sent
    again. The exit status is the run's.
    """
    import asyncio

    from storlab.cli.remote.session import Watched, ended, watch

    known = asyncio.run(_jobs(host))
    chosen = choose(host, known, folder)

    async def begin(there: Host) -> str:
        return chosen.job

    watched = Watched(
        host=host,
        command=chosen.command,
        results=places_of(chosen, folder),
        run=next(iter(chosen.results), None),
        tied=False,
        keep=True,
        measures=True,
        quiet=quiet or json,
    )
    undecided = "--allow-undecided" in chosen.words
    raise typer.Exit(ended(watch(watched, begin), watched, json=json, allow_undecided=undecided))


async def _jobs(host: str) -> list[Known]:
    from storlab.base.errors import SshError
    from storlab.remote.host import Host
    from storlab.ssh.machine import connected

    try:
        async with connected(host) as machine:
            return await Host(host, machine).jobs()
    except SshError as error:
        raise UserError(str(error)) from None


def choose(host: str, jobs: list[Known], folder: Path | None) -> Known:
    """The one that is meant: of several, those that run or were not fetched. Raises ``UserError``."""
    if folder is not None:
        jobs = [job for job in jobs if place_of(job) == folder.absolute() or name_of(job) == str(folder)]
    else:
        jobs = [job for job in jobs if job.alive or not job.fetched]
    if not jobs:
        what = f"no run there belongs to {folder}" if folder is not None else "nothing runs there, and all is fetched"
        raise UserError(f"{host}: {what}")
    if len({name_of(job) for job in jobs}) > 1:
        several = "; ".join(f"{name_of(job)} ({job.command}, since {job.since})" for job in jobs)
        raise UserError(f"{host} has several: {several}. Name one: `storlab attach {host} {name_of(jobs[-1])}`")
    return jobs[-1]


def name_of(job: Known) -> str:
    return next(iter(job.results), job.command)


def place_of(job: Known) -> Path | None:
    """Where its records belong on this machine; ``None`` if another one started it."""
    from storlab.run.noise import this_machine

    return Path(job.here.places[0]) if job.here.machine == this_machine() and job.here.places else None


def places_of(job: Known, folder: Path | None) -> dict[str, Path]:
    """Of all results: where whoever started it wanted them, or else ``folder``, or their names in this directory."""
    place = place_of(job)
    if place is not None:
        return dict(zip(job.results, map(Path, job.here.places), strict=True))
    return {name: (folder or Path(name)).absolute() for name in job.results[:1]}
