"""``storlab import KIND``: a command for each kind in the table, and one that finds out which kind it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from storlab.base.errors import UserError
from storlab.base.limits import STUDY_TEXT
from storlab.base.reading import read_file
from storlab.base.text import printable
from storlab.cli.import_.options import ImportOptions
from storlab.cli.output import one_thread_for_algebra
from storlab.metrics import WHISKERS
from storlab.tools.kinds import KINDS, Asked, importers, is_reader, reader_kinds

_HELP = """Turn the results of other tools into a run.

With FILE... instead of a kind, detects which tool wrote the files and shows the report at once. To force a kind:
storlab import fio FILE."""
_DETECTED = "FILE..."
"""In the place of a kind: the command that finds out which it is."""
_DETECTS = """Files of one tool, which is found out by what is in them; then the report is shown at once.

The options of columns are of tables (csv), --dialect is of blkalgn, --clients of fio."""
_TURNS = (
    "They were measured in turns on one machine, in the order of their own times or, without these, as given: compare "
    "them by round, with verdicts."
)
_OUTLIERS = "Samples within a trial are outliers this many interquartile ranges beyond the quartiles."
_CLIENTS = "Files that ran at once are one trial, each of one client: rates and counts are added up."
_COMMON: Mapping[str, tuple[Any, Any]] = {
    "out": (Path | None, Option("--out", metavar="DIR", help="A new folder for the run.")),
    "label": (
        list[str] | None,
        Option("--label", metavar="NAME", help="What a file or folder is called; once for each, in order."),
    ),
    "factor": (
        list[str] | None,
        Option("--factor", metavar="NAME=LEVEL[,LEVEL]", help="A factor: one level for all, or one for each."),
    ),
    "interleaved": (bool, Option("--interleaved", help=_TURNS)),
    "whiskers": (float, Option("--whiskers", metavar="NUMBER", min=0.001, max=1000, help=_OUTLIERS)),
}
_ALSO: Mapping[str, tuple[Any, Any]] = {
    "clients": (bool, Option("--clients", help=_CLIENTS)),
    "nodes": (str | None, Option("--nodes", metavar="NAME,NAME", help="The nodes; by default all but host.")),
    "option": (list[str] | None, Option("--option", metavar="NAME=VALUE", help="What the extension asks for.")),
}
_DEFAULTS = {"interleaved": False, "whiskers": WHISKERS, "clients": False}


class ImportCommands(TyperGroup):
    """The commands of all kinds, those of extensions among them. What is no kind is a file, whose kind is found."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = True  # they are of the command, also where they stand before its files
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        command = self.get_command(ctx, args[0])
        return (args[0], command, args[1:]) if command else (_DETECTED, _detecting(), args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*KINDS, *importers()]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = KINDS if cmd_name in KINDS else reader_kinds() if is_reader(cmd_name) else {}
        if (of := own.get(cmd_name)) is not None:
            return _command(cmd_name, of.help, of.files, of.also, of.options)
        if cmd_name not in importers():
            return None
        package = importers()[cmd_name].dist
        said = f"Files of {cmd_name}, read by {package.name if package else 'an extension'}."
        return _command(cmd_name, said, ("PATH...", "Files, or folders of them."), ("option",), {})


import_ = typer.Typer(
    name="import",
    cls=ImportCommands,
    no_args_is_help=True,
    callback=one_thread_for_algebra,
    help=_HELP,
    subcommand_metavar="[KIND] FILE...",
)


def _import(options: ImportOptions) -> None:
    from storlab.cli.import_.files import import_files

    import_files(options)


def _detect(options: ImportOptions) -> None:
    from storlab.cli.import_.detect import import_detected

    import_detected(options)


def _detecting() -> Any:
    options = {name: each for kind, of in KINDS.items() if kind != "text" for name, each in of.options.items()}
    return _command("", _DETECTS, ("PATH...", "Files, or folders of them."), ("clients",), options, _detect)


def _command(
    kind: str,
    said: str,
    files: tuple[str, str],
    also: Iterable[str],
    options: Mapping[str, Asked],
    run: Callable[[ImportOptions], None] | None = None,
) -> Any:
    # "readable": of what can't be read, the importers say why in one sentence.
    parameters: dict[str, tuple[Any, Any]] = {
        "paths": (list[Path], Argument(metavar=files[0], readable=False, help=files[1]))
    }
    parameters |= {name: _option(name, each) for name, each in options.items()}
    parameters |= {**_COMMON, **{name: _ALSO[name] for name in also}}

    def called(paths: list[Path], **given: Any) -> None:
        of_kind = {name: given[name] for name in options if given[name] is not None}
        of_kind |= {name: _reader(given[name]) for name in of_kind if options[name].file}
        of_kind |= _written(given.get("option") or [])
        asked = ImportOptions(
            kind,
            paths,
            given["out"],
            given["label"],
            given["factor"],
            interleaved=given["interleaved"],
            clients=given.get("clients", False),
            whiskers=given["whiskers"],
            nodes=tuple(name.strip() for name in (given.get("nodes") or "").split(",") if name.strip()),
            of_kind=of_kind,
        )
        (run or _import)(asked)

    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=Annotated[type_, about],
                default=inspect.Parameter.empty if name == "paths" else _DEFAULTS.get(name),
            )
            for name, (type_, about) in parameters.items()
        ]
    )
    called.__annotations__ = {name: Annotated[type_, about] for name, (type_, about) in parameters.items()}
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(kind or _DETECTED, help=said)(called)
    return typer.main.get_command(app)


def _option(name: str, asked: Asked) -> tuple[Any, Any]:
    type_ = list[str] | None if asked.many else int | None if asked.within else str | None
    least, most = asked.within or (None, None)
    words = f"--{name.replace('_', '-')}"
    return type_, Option(words, metavar=asked.metavar, min=least, max=most, help=asked.help)


def _reader(file: str) -> str:
    """The text of a reader, which reads its own samples right."""
    from storlab.cli.import_.paths import readable
    from storlab.tools.readers.importer import check_samples
    from storlab.tools.readers.rules import reader_of

    with readable(Path(file)):
        text = read_file(Path(file), STUDY_TEXT, pipes=True).decode(errors="replace")
    try:
        check_samples(reader_of(text, file), file)
    except ValueError as error:
        raise UserError(printable(str(error))) from None
    return text


def _written(options: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in options:
        name, equals, found[name] = text.partition("=")
        if not equals:
            raise UserError(f"--option {text}: write NAME=VALUE")
    return found
