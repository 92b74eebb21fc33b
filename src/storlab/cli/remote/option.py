"""The options ``--on`` and ``--tied``, for every command that can run on another machine.

They are added to a command from outside, so that commands need not know of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Option

from storlab.cli.remote.travel import RULES, Rule
from storlab.errors import UserError

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
            from storlab.cli.remote.elsewhere import run_elsewhere

            known = {each.name: each for each in context.command.params}
            given = [(known[key], value) for key, value in values.items() if _is_written(context, key)]
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


def _is_written(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_elsewhere(name: str, rule: Rule, values: dict[str, Any]) -> None:
    folder = values.get(rule.run) if rule.run and not rule.output else None
    if folder is None:
        return
    from storlab.remote.origin import read_origin

    if (origin := read_origin(Path(folder))) is not None:
        raise UserError(f"{folder} was run on {origin.host}: `storlab {name} {folder} --on {origin.host}`")
