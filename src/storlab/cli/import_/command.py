"""``storlab import KIND``: the options of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from storlab.cli.import_.options import ImportOptions
from storlab.cli.options import String, Strings
from storlab.cli.output import one_thread_for_algebra
from storlab.errors import UserError
from storlab.metrics import WHISKERS

# "readable": of what can't be read, the importers say why in one sentence.
Paths = Annotated[list[Path], Argument(metavar="PATH...", readable=False, help="Files, or folders of them.")]
ImportOut = Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for the run.")]
_LABEL = Option("--label", metavar="NAME", help="What a file or folder is called; once for each, in order.")
_HELP = """Turn the results of other tools into a run.

With FILE... instead of a kind, detects which tool wrote the files and shows the report at once. To force a kind:
storlab import fio FILE."""
_LEVELS = "A factor: one level for all, or one for each."
_TURNS = (
    "They were measured in turns on one machine, in the order of their own times or, without these, as given: compare "
    "them by round, with verdicts."
)
Label = Annotated[Strings, _LABEL]
Factor = Annotated[Strings, Option("--factor", metavar="NAME=LEVEL[,LEVEL]", help=_LEVELS)]
Interleaved = Annotated[bool, Option("--interleaved", help=_TURNS)]
_CLIENTS = "Files that ran at once are one trial, each of one client: rates and counts are added up."
Clients = Annotated[bool, Option("--clients", help=_CLIENTS)]
_OUTLIERS = "Samples within a trial are outliers this many interquartile ranges beyond the quartiles."
Whiskers = Annotated[float, Option("--whiskers", metavar="NUMBER", min=0.001, max=1000, help=_OUTLIERS)]


def _files(what: str) -> Any:
    return Argument(metavar="FILE...", readable=False, help=what)


def _column(option: str, what: str) -> Any:
    return Option(option, metavar="NAME", help=what)


Dialect = Annotated[
    int | None, Option("--dialect", metavar="1-4", min=1, max=4, help="The dialect, where a file does not show it.")
]
Printed = Annotated[list[Path], _files("Text that sysbench printed.")]
Captures = Annotated[list[Path], _files("Captures, or text that tcpdump printed.")]
Results = Annotated[list[Path], _files("What Bonnie++ printed, or its CSV.")]

_DETECTED = "FILE..."
"""In the place of a kind: the command that finds out which it is."""


class ImportCommands(TyperGroup):
    """The commands below, and one for each importer of an extension. What is no kind is a file, whose kind is found."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = True  # they are of the command, also where they stand before its files
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        command = self.get_command(ctx, args[0])
        return (args[0], command, args[1:]) if command else (_DETECTED, _detecting(), args)

    def list_commands(self, ctx: Any) -> list[str]:
        from storlab.tools.registry import importers

        return list(dict.fromkeys([*super().list_commands(ctx), *importers()]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from storlab.tools.registry import importers

        found = super().get_command(ctx, cmd_name)
        return _extension(cmd_name) if found is None and cmd_name in importers() else found


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


@import_.command("blkalgn")
def import_blkalgn(
    files: Annotated[list[Path], _files("JSON of blkalgn, of any version.")],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    dialect: Dialect = None,
    interleaved: Interleaved = False,
) -> None:
    """Histograms of block requests by blkalgn.

    Its four dialects of JSON are told apart by what is in them. Each file is a cell of the run.
    """
    options = {} if dialect is None else {"dialect": dialect}
    _import(ImportOptions("blkalgn", files, out, label, factor, interleaved=interleaved, of_kind=options))


@import_.command("fio")
def import_fio(
    paths: Paths,
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
    whiskers: Whiskers = WHISKERS,
    clients: Clients = False,
) -> None:
    """Output of fio: JSON, JSON+, terse or for people, with the logs that lie beside it; or kdevops' folder of it.

    Options that differ among the jobs become factors; runs with the same options are rounds, in the order of their
    times, or as given.
    """
    _import(
        ImportOptions("fio", paths, out, label, factor, interleaved=interleaved, whiskers=whiskers, clients=clients)
    )


@import_.command("falcon")
def import_falcon(
    folders: Annotated[list[Path], Argument(metavar="FOLDER...", readable=False, help="Folders of results.")],
    nodes: Annotated[String, Option("--nodes", metavar="NAME,NAME", help="The nodes; by default all but host.")] = None,
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
    whiskers: Whiskers = WHISKERS,
) -> None:
    """Output of fio on several machines at once, FOLDER/NODE or FOLDER/NODE/TEST, and their host's load.

    Files of the same test are one trial. Those of host are what w or uptime printed there.
    """
    names = [name.strip() for name in nodes.split(",")] if nodes else []
    _import(
        ImportOptions("falcon", folders, out, label, factor, interleaved=interleaved, whiskers=whiskers, nodes=names)
    )


@import_.command("virtiofs-tests")
def import_virtiofs_tests(paths: Paths, out: ImportOut = None, label: Label = None, factor: Factor = None) -> None:
    """Raw files of virtiofs-tests: fio jobs on shared folders.

    A cell for each set-up (TEST_NAME) and job, a round for each loop. `storlab report --format virtiofs-tests`
    prints the table that is published from such files.
    """
    _import(ImportOptions("virtiofs-tests", paths, out, label, factor))


@import_.command("zfs-perf")
def import_zfs_perf(
    folders: Annotated[list[Path], Argument(metavar="FOLDER...", readable=False, help="Folders perf_data.")],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
) -> None:
    """Results of the ZFS Test Suite's tests/perf: what fio and zpool iostat said, with config.json.

    File names say test, kind of I/O, size, threads and file systems; the same name in another folder is a round more.
    """
    _import(ImportOptions("zfs-perf", folders, out, label, factor, interleaved=interleaved))


@import_.command("sysbench")
def import_sysbench(
    files: Printed,
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
    whiskers: Whiskers = WHISKERS,
) -> None:
    """Text of sysbench: OLTP, fileio and others, with any report interval; or kdevops' folder of such results.

    Each file is a cell, or a round of one: files with the same label or levels are rounds, in order. In kdevops'
    folders, hosts tell set-ups apart: by file system, settings and kernel.
    """
    _import(ImportOptions("sysbench", files, out, label, factor, interleaved=interleaved, whiskers=whiskers))


@import_.command("pgbench")
def import_pgbench(
    files: Annotated[list[Path], _files("What pgbench printed, or its logs.")],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
    whiskers: Whiskers = WHISKERS,
) -> None:
    """Summaries of pgbench with their progress lines, and its logs of transactions or intervals.

    Logs of the same run's other threads beside it are read too, as are the logs beside a summary.
    """
    _import(ImportOptions("pgbench", files, out, label, factor, interleaved=interleaved, whiskers=whiskers))


@import_.command("elbencho")
def import_elbencho(
    files: Annotated[list[Path], _files("What elbencho printed, or its CSV.")],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
    whiskers: Whiskers = WHISKERS,
) -> None:
    """Results of elbencho: CSV, text, and live statistics as CSV.

    Phases with the same settings that follow each other are one trial, until one comes again.
    """
    _import(ImportOptions("elbencho", files, out, label, factor, interleaved=interleaved, whiskers=whiskers))


@import_.command("vdbench")
def import_vdbench(
    files: Annotated[list[Path], _files("flatfile.html, summary.html or totals.html.")],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
    whiskers: Whiskers = WHISKERS,
) -> None:
    """Results of vdbench: its flat file, which has most, its summary or its totals.

    A trial for each run (RD=); the parameters in which runs differ become factors.
    """
    _import(ImportOptions("vdbench", files, out, label, factor, interleaved=interleaved, whiskers=whiskers))


@import_.command("bonnie")
def import_bonnie(
    files: Results, out: ImportOut = None, label: Label = None, factor: Factor = None, interleaved: Interleaved = False
) -> None:
    """Results of Bonnie++: CSV and text tables of all versions.

    A cell for each machine's name; several results of one name are its rounds.
    """
    _import(ImportOptions("bonnie", files, out, label, factor, interleaved=interleaved))


@import_.command("pcap")
def import_pcap(
    files: Captures, out: ImportOut = None, label: Label = None, factor: Factor = None, interleaved: Interleaved = False
) -> None:
    """Captures of packets: pcap, pcapng, and what tcpdump prints.

    What TCP did: segments, ACKs and how much each acknowledges, retransmits, gaps, by connection and together; and
    what the capture lacks. Each file is a cell, or a round of one.
    """
    _import(ImportOptions("pcap", files, out, label, factor, interleaved=interleaved))


Value = Annotated[
    Strings,
    Option(
        "--value",
        metavar="COLUMN[:UNIT[:BETTER]]",
        help="Numbers: IOPS:1/s:higher, lat:ms:lower, or METRIC=COLUMN for another name. A unit in the heading "
        "need not be named.",
    ),
]
FactorColumn = Annotated[Strings, _column("--factor-column", "A column that tells set-ups apart.")]
MetricColumn = Annotated[String, _column("--metric-column", "The column that says what each number is of.")]
RoundColumn = Annotated[String, _column("--round-column", "The column that numbers the repeats, from 0 or 1.")]
IgnoreColumn = Annotated[Strings, _column("--ignore-column", "A column of text, or of a setting, that doesn't matter.")]
TimeColumn = Annotated[
    String, Option("--time-column", metavar="NAME[:UNIT]", help="Seconds since the trial began, or ms, min.")
]
Separator = Annotated[
    String, Option("--separator", metavar="SIGN", help="Field separator, unless it is comma, semicolon or tab.")
]
Decimal = Annotated[String, Option("--decimal", metavar="SIGN", help="Decimal separator: . or , (as in 1,5).")]


@import_.command("csv")
def import_csv(
    files: Annotated[list[Path], _files("Tables whose first line names the columns.")],
    value: Value = None,
    factor_column: FactorColumn = None,
    metric_column: MetricColumn = None,
    round_column: RoundColumn = None,
    time_column: TimeColumn = None,
    ignore_column: IgnoreColumn = None,
    separator: Separator = None,
    decimal: Decimal = None,
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
    whiskers: Whiskers = WHISKERS,
) -> None:
    """Any table, long or wide, with commas, semicolons or tabs.

    Wide: a row is a trial, with a --value for each column of numbers. Long: --metric-column says what each row's
    number is of. Rows with the same factors are rounds of one cell, in order or as --round-column numbers them; with
    --time-column, they are the series of one trial.
    """
    others = {"metric_column": metric_column, "round_column": round_column, "time_column": time_column}
    others |= {"separator": separator, "decimal": decimal}
    options: dict[str, object] = {"value": value or [], "factor_column": factor_column or []}
    options |= {"ignore_column": ignore_column} if ignore_column else {}
    options |= {name: column for name, column in others.items() if column is not None}
    _import(
        ImportOptions("csv", files, out, label, factor, interleaved=interleaved, whiskers=whiskers, of_kind=options)
    )


def _detecting() -> Any:
    """The command of files whose kind is to be found out: with the options of all kinds."""
    app = typer.Typer(rich_markup_mode=None)
    app.command(_DETECTED)(import_detected)
    return typer.main.get_command(app)


def import_detected(
    paths: Paths,
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
    whiskers: Whiskers = WHISKERS,
    value: Value = None,
    factor_column: FactorColumn = None,
    metric_column: MetricColumn = None,
    round_column: RoundColumn = None,
    time_column: TimeColumn = None,
    ignore_column: IgnoreColumn = None,
    separator: Separator = None,
    decimal: Decimal = None,
    dialect: Dialect = None,
    clients: Clients = False,
) -> None:
    """Files of one tool, which is found out by what is in them; then the report is shown at once.

    The options of columns are of tables (csv), --dialect is of blkalgn, --clients of fio.
    """
    from storlab.cli.import_ import detect

    given: dict[str, object | None] = {"value": value, "factor_column": factor_column, "metric_column": metric_column}
    given |= {"round_column": round_column, "time_column": time_column, "separator": separator, "decimal": decimal}
    given |= {"ignore_column": ignore_column, "dialect": dialect}
    options = {name: each for name, each in given.items() if each is not None}
    detect.import_detected(
        ImportOptions(
            "",
            paths,
            out,
            label,
            factor,
            interleaved=interleaved,
            clients=clients,
            whiskers=whiskers,
            of_kind=options,
        )
    )


def _extension(kind: str) -> Any:
    """The command of an importer that an extension brings."""

    def import_extension(
        paths: Paths,
        out: ImportOut = None,
        label: Label = None,
        factor: Factor = None,
        option: Annotated[
            Strings, Option("--option", metavar="NAME=VALUE", help="What the extension asks for.")
        ] = None,
        interleaved: Interleaved = False,
    ) -> None:
        options = {}
        for text in option or []:
            name, equals, options[name] = text.partition("=")
            if not equals:
                raise UserError(f"--option {text}: write NAME=VALUE")
        _import(ImportOptions(kind, paths, out, label, factor, interleaved=interleaved, of_kind=options))

    from storlab.tools.registry import importers

    package = importers()[kind].dist
    app = typer.Typer(rich_markup_mode=None)
    app.command(kind, help=f"Files of {kind}, read by {package.name if package else 'an extension'}.")(import_extension)
    return typer.main.get_command(app)
