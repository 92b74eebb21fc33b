"""The program ``storlab``: its commands and options. What a command does is in its own module.

Modules are imported inside the commands, so that ``storlab --help`` and shell completion answer at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from storlab.version import __version__


class Commands(TyperGroup):
    """All commands; a reader that has seen enough of their output (``storlab list | head -1``) is no fault."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            from storlab.cli.failure import explain

            raise typer.Exit(explain(error)) from None
        except SystemExit:  # raised by Rich, and by nothing else in here: Console.on_broken_pipe()
            raise typer.Exit(0) from None
        return result


app = typer.Typer(
    name="storlab",
    cls=Commands,
    help="A laboratory for storage performance: is set-up A better than B, by how much, is it real, and why?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # messages are for users; see cli/failure.py
    rich_markup_mode=None,  # with it, Typer imports all of Rich and Markdown for a page of plain help
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 complete, 2 a mistake in what was asked, 3 some trials failed, 4 a gate of compare was hit, "
    "1 a fault of Storlab's own, 130 interrupted.",
)


def _studies(incomplete: str) -> list[str]:
    folder = Path(__file__).resolve().parent.parent / "studies"
    return [path.stem for path in sorted(folder.glob("*.toml")) if path.stem.startswith(incomplete)]


def _compare_formats(incomplete: str) -> list[str]:
    return [name for name in ("text", "markdown", "json", "junit") if name.startswith(incomplete)]


def _formats(incomplete: str) -> list[str]:
    return [
        name for name in ("text", "md", "html", "csv", "json", "adoc", "virtiofs-tests") if name.startswith(incomplete)
    ]


Study = Annotated[
    str, typer.Argument(metavar="STUDY", help="A shipped study's name, or a study file.", autocompletion=_studies)
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a parameter or any key: size=1G, repeat.max=10."),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="FACTOR=LEVEL[,LEVEL]", help="Only these levels of a factor."),
]
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="So many rounds, no fewer and no more.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="For the order of trials and random offsets.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")]


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"storlab {__version__}")
        raise typer.Exit


@app.command()
def run(
    study: Study,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A new folder for this run.")] = None,
    set_: Set = None,
    rounds: Rounds = None,
    seed: Seed = None,
    only: Only = None,
    build: Annotated[bool, typer.Option("--build", help="Build the guest images that it needs, where absent.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study, from declaration to report."""
    from storlab.cli.run import run as command

    raise typer.Exit(command(study, out, set_ or [], only or [], rounds, seed, build, quiet, json))


@app.command()
def shell(
    study: Study,
    node: Annotated[str | None, typer.Argument(metavar="NODE", help="By default the first with a load.")] = None,
    set_: Set = None,
    only: Only = None,
    build: Annotated[bool, typer.Option("--build", help="Build the guest images that it needs, where absent.")] = False,
) -> None:
    """Put up one cell of a study and open a shell on one of its nodes.

    The first cell of those that --only leaves. All is taken down when the shell ends.
    """
    from storlab.cli.shell import shell as command

    raise typer.Exit(command(study, node, set_ or [], only or [], build))


@app.command()
def plan(
    study: Study, set_: Set = None, rounds: Rounds = None, seed: Seed = None, only: Only = None, json: Json = False
) -> None:
    """Say what a study would do and what it needs.

    Its cells, their stacks, what is unsupported here and why, disk space, privileges and time. Runs nothing.
    """
    from storlab.cli.plan import plan as command

    command(study, set_ or [], only or [], rounds, seed, json)


@app.command()
def noise(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY]", help="Its first cell; without, a short fio load.", autocompletion=_studies),
    ] = None,
    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, such as 5m.")] = "1m",
    in_: Annotated[Path | None, typer.Option("--in", metavar="DIR", help="Where its files lie.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure the noise of this machine: A against A.

    Says what difference can be seen here, with how many rounds of what length.
    """
    from storlab.cli.noise import noise as command

    raise typer.Exit(command(study, for_, in_, quiet, json))


@app.command()
def resume(folder: Run, quiet: Quiet = False, json: Json = False) -> None:
    """Go on with a run that was interrupted.

    Finished trials are kept, only the rest runs, in the order that was planned.
    """
    from storlab.cli.run import resume as command

    raise typer.Exit(command(folder, quiet, json))


@app.command()
def report(
    folder: Run,
    format_: Annotated[
        str,
        typer.Option("--format", "-f", metavar="text|md|html|csv|json|adoc", autocompletion=_formats, help="Format."),
    ] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Report on a run, new or old, from its records."""
    from storlab.cli.report import report as command

    command(folder, format_, output)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs; the first is the baseline.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="FACTOR", help="Levels of this factor, rather than runs.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="NAME", help="Instead of the primary metric.")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on", metavar="GATE", help="End with status 4: worse, 'worse>3%', better, differs, missing."
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="text|markdown|json|junit", autocompletion=_compare_formats, help="Format."
        ),
    ] = "text",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Compare runs with each other, or levels of a factor over runs.

    Trials that were interleaved get verdicts; differences between runs that were not are described.
    """
    from storlab.cli.compare import compare as command

    raise typer.Exit(command(runs, by, metric or [], fail_on or [], format_, out))


@app.command()
def trace(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ...]", help="Trace while this runs.", show_default=False)
    ] = None,
    disk: Annotated[
        list[str] | None, typer.Option("--disk", metavar="DISK", help="Only this disk or partition.")
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option("--op", metavar="OP", help="Only read, write, flush, discard, …")
    ] = None,
    comm: Annotated[list[str] | None, typer.Option("--comm", metavar="NAME", help="Only of this command.")] = None,
    length: Annotated[list[str] | None, typer.Option("--length", metavar="SIZE", help="Only of this length.")] = None,
    alignment: Annotated[
        list[str] | None, typer.Option("--alignment", metavar="SIZE", help="Only with this joint alignment.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="TIME", help="Show the counts so often; live by default 1s.")
    ] = None,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time: 30s.")] = None,
    by_comm: Annotated[bool, typer.Option("--by-comm", help="Count each command apart.")] = False,
    events: Annotated[bool, typer.Option("--events", help="Each request by itself, a row as it is issued.")] = False,
    json: Annotated[bool, typer.Option("--json", help="blkalgn's JSON, keys in bytes, instead of tables.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it too: .json, .parquet, .txt or .csv.")
    ] = None,
) -> None:
    """Watch block I/O: lengths, alignment, flags, latencies.

    Counted exactly, in the kernel, by eBPF; needs root. Until Ctrl-C, or while COMMAND runs: then its exit status
    is passed on, and what was seen goes to standard error.
    """
    from storlab.cli.trace import trace as run_trace
    from storlab.cli.trace_options import read_options

    options = read_options(
        disks=disk or [],
        operations=op or [],
        comms=comm or [],
        lengths=length or [],
        alignments=alignment or [],
        interval=interval,
        period=for_,
        out=out,
        by_comm=by_comm,
        events=events,
        json=json,
        command=command or [],
    )
    raise typer.Exit(run_trace(options))


@app.command("list")
def list_(json: Json = False) -> None:
    """List the shipped studies and what studies are made of."""
    from storlab.cli.listing import listing as command

    command(json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of study files.

    Editors complete and check studies by it: `storlab schema > study.schema.json`, and a first line
    `#:schema study.schema.json` in the study.
    """
    from storlab.cli.schema import schema as command

    command()


@app.command()
def doctor(json: Json = False) -> None:
    """Say what this machine can do, and how to mend the rest."""
    from storlab.cli.doctor import doctor as command

    command(json)


@app.command()
def clean(
    folder: Annotated[Path | None, typer.Argument(metavar="RUN", help="One run; by default all.")] = None,
) -> None:
    """Take down what runs have left standing.

    Whatever a run's journal says was put up and still stands, and never anything else.
    """
    from storlab.cli.clean import clean as command

    raise typer.Exit(command(folder))


Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or folders of them.")]
ImportOut = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A new folder for the run.")]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME", help="What a file or folder is called; once for each, in order."),
]
Factor = Annotated[
    list[str] | None,
    typer.Option("--factor", metavar="NAME=LEVEL[,LEVEL]", help="A factor: one level for all, or one for each."),
]

import_ = typer.Typer(name="import", help="Make a run of results that other tools have left.", no_args_is_help=True)
app.add_typer(import_)


@import_.command("blkalgn")
def import_blkalgn(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON of blkalgn, of any version.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A new folder for the run.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="What a file is called; once for each, in order."),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor", metavar="NAME=LEVEL[,LEVEL]", help="A factor: one level for all, or one for each file."
        ),
    ] = None,
    dialect: Annotated[
        int | None,
        typer.Option("--dialect", metavar="1-4", min=1, max=4, help="Which it is, where a file does not show it."),
    ] = None,
) -> None:
    """Histograms of block requests by blkalgn.

    Its four dialects of JSON are told apart by what is in them. Each file is a cell of the run.
    """
    from storlab.cli.import_ import import_files

    import_files("blkalgn", files, out, label or [], factor or [], {} if dialect is None else {"dialect": dialect})


@import_.command("fio")
def import_fio(paths: Paths, out: ImportOut = None, label: Label = None, factor: Factor = None) -> None:
    """Output of fio: JSON, JSON+ or terse, with its logs where they lie beside.

    Options that differ among the jobs become factors; runs with the same options are rounds, in the order of their
    times, or as given.
    """
    from storlab.cli.import_ import import_files

    import_files("fio", paths, out, label or [], factor or [], {})


@import_.command("virtiofs-tests")
def import_virtiofs_tests(paths: Paths, out: ImportOut = None, label: Label = None, factor: Factor = None) -> None:
    """Raw files of virtiofs-tests: fio jobs on shared folders.

    A cell for each set-up (TEST_NAME) and job, a round for each loop. `storlab report --format virtiofs-tests`
    prints the table that is published from such files.
    """
    from storlab.cli.import_ import import_files

    import_files("virtiofs-tests", paths, out, label or [], factor or [], {})


@import_.command("sysbench")
def import_sysbench(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Text that sysbench 1.0 printed.")],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
) -> None:
    """Text of sysbench: OLTP, fileio and others, with any report interval.

    Each file is a cell, or a round of one: files with the same label or levels are rounds, in order.
    """
    from storlab.cli.import_ import import_files

    import_files("sysbench", files, out, label or [], factor or [], {})


@import_.command("bonnie")
def import_bonnie(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="CSV, or the text table of 1.03.")],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
) -> None:
    """Results of Bonnie++: CSV of all versions, and the text table of 1.03.

    A cell for each machine's name; several lines of one name are its rounds.
    """
    from storlab.cli.import_ import import_files

    import_files("bonnie", files, out, label or [], factor or [], {})


@import_.command("csv")
def import_csv(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Tables whose first line names the columns.")],
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value", metavar="NAME[:UNIT[:BETTER]]", help="A column of numbers: IOPS:1/s:higher, lat:ms:lower."
        ),
    ] = None,
    factor_column: Annotated[
        list[str] | None, typer.Option("--factor-column", metavar="NAME", help="A column that tells set-ups apart.")
    ] = None,
    metric_column: Annotated[
        str | None, typer.Option("--metric-column", metavar="NAME", help="The column that says what the number is of.")
    ] = None,
    round_column: Annotated[
        str | None, typer.Option("--round-column", metavar="NAME", help="The column that numbers the repeats, from 1.")
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option("--time-column", metavar="NAME[:UNIT]", help="Seconds since the trial began, or ms, min."),
    ] = None,
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
) -> None:
    """Any table, long or wide, with commas, semicolons or tabs.

    Each row is a trial: rows with the same factors are rounds of one cell. With --time-column, they are one series.
    """
    from storlab.cli.import_ import import_files

    columns = {"metric_column": metric_column, "round_column": round_column, "time_column": time_column}
    options: dict[str, Any] = {"value": value or [], "factor_column": factor_column or []}
    options |= {name: column for name, column in columns.items() if column is not None}
    import_files("csv", files, out, label or [], factor or [], options)


image = typer.Typer(name="image", help="Build, list and remove what guests boot.", no_args_is_help=True)
app.add_typer(image)


@image.command("build")
def image_build(
    with_: Annotated[
        list[str] | None, typer.Option("--with", metavar="EXTRA", help="What it shall have besides: zfs.")
    ] = None,
    mirror: Annotated[
        str, typer.Option("--mirror", metavar="URL", help="A mirror of Debian.")
    ] = "http://deb.debian.org/debian",
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Only if there is none yet; then no mirror is asked.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Build a guest image, or what is missing of it.

    A Debian with the newest 6.12 kernel of its backports. Finished parts are used again.
    """
    from storlab.cli.image import build as command

    raise typer.Exit(command(with_ or [], mirror, if_missing, quiet))


@image.command("list")
def image_list(json: Json = False) -> None:
    """List the guest images in the cache."""
    from storlab.cli.image import listing as command

    command(json)


@image.command("remove")
def image_remove(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="An image, as the list names it.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All images, and all that was downloaded for them.")] = False,
) -> None:
    """Remove a guest image, or all."""
    from storlab.cli.image import remove as command

    command(name, all_)


def main() -> None:
    """The entry point: runs a command and turns every error into a message and an exit status."""
    from storlab.cli.failure import explain

    try:
        app()
    except Exception as error:
        sys.exit(explain(error))


if __name__ == "__main__":
    main()
