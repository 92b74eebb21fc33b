"""The program ``storlab`` and its commands, each a module or a package of its own.

All are loaded for ``--help``: what a command needs to do its work, its functions load.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from storlab.cli.check import check
from storlab.cli.clean import clean
from storlab.cli.crash import crash
from storlab.cli.image import image
from storlab.cli.import_.command import import_
from storlab.cli.lab.command import lab
from storlab.cli.listing import doctor, listing, schema
from storlab.cli.new import new
from storlab.cli.noise import noise
from storlab.cli.output import show
from storlab.cli.plan.command import plan
from storlab.cli.remote.option import attach, travels
from storlab.cli.report import compare, merge, report
from storlab.cli.run import resume, run
from storlab.cli.shell import shell
from storlab.cli.suite.command import suite
from storlab.cli.trace.command import trace
from storlab.version import __version__


class Commands(TyperGroup):
    """All commands; a reader that has seen enough of their output (``storlab list | head -1``) is no fault."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            from storlab.cli.status import explain

            raise typer.Exit(explain(error)) from None
        return result


app = typer.Typer(
    name="storlab",
    cls=Commands,
    help="A laboratory for storage performance: is set-up A better than B, by how much, is it real, and why?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # messages are for users; see cli/status.py
    rich_markup_mode=None,  # with it, Typer imports all of Rich and Markdown for a page of plain help
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 complete, 2 a usage error, 3 some trials failed, 4 a gate was not passed, "
    "1 an internal error, 130 interrupted.",
)


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context, version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False
) -> None:
    if version:
        _print_version()
        raise typer.Exit


def _print_version() -> None:
    show(f"storlab {__version__}")


app.command()(check)
app.command()(new)
app.command()(travels("run")(run))
app.command()(shell)
app.command()(travels("plan")(plan))
app.command()(travels("crash")(crash))
app.command()(travels("noise")(noise))
app.command()(travels("resume")(resume))
app.command()(merge)
app.command()(travels("report")(report))
app.command()(attach)
app.command()(compare)
app.command()(travels("trace")(trace))
app.command("list")(listing)
app.command()(schema)
app.command()(travels("doctor")(doctor))
app.command()(travels("clean")(clean))
app.add_typer(import_)
app.add_typer(image)
app.add_typer(suite)
app.add_typer(lab)


def main() -> None:
    """The entry point: runs a command and turns every error into a message and an exit status."""
    from storlab.cli.status import explaining

    if sys.argv[1:] == ["--version"]:  # Typer reads options by pydantic, which takes longer to load than all else
        explaining(_print_version)
        return
    explaining(lambda: app(prog_name="storlab"))


if __name__ == "__main__":
    main()
