"""``storlab lab``: the group of its commands, each a module of its own."""

from __future__ import annotations

import typer

from storlab.cli.lab.check import check
from storlab.cli.lab.forget import forget
from storlab.cli.lab.listing import listing
from storlab.cli.lab.locks import lock, unlock
from storlab.cli.lab.prepare import prepare

lab = typer.Typer(
    name="lab",
    no_args_is_help=True,
    help="Check, prepare and reserve the machines of a lab.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
lab.command("list")(listing)
lab.command()(check)
lab.command()(prepare)
lab.command()(forget)
lab.command()(lock)
lab.command()(unlock)
