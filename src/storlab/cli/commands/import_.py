"""``storlab import KIND``: the options of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from storlab.cli.threads import one_for_algebra

# "readable": of what can't be read, the importers say why in one sentence.
Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", readable=False, help="Files, or folders of them.")]
ImportOut = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A new folder for the run.")]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME", help="What a file or folder is called; once for each, in order."),
]
Factor = Annotated[
    list[str] | None,
    typer.Option("--factor", metavar="NAME=LEVEL[,LEVEL]", help="A factor: one level for all, or one for each."),
]
Interleaved = Annotated[
    bool,
    typer.Option(
        "--interleaved",
        help="They were measured in turns on one machine, in the order of their own times or, without these, as given: "
        "compare them by round, with verdicts.",
    ),
]

import_ = typer.Typer(
    name="import",
    help="Make a run of results that other tools have left.",
    no_args_is_help=True,
    callback=one_for_algebra,
)


@import_.command("blkalgn")
def import_blkalgn(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", readable=False, help="JSON of blkalgn, of any version.")
    ],
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
    interleaved: Interleaved = False,
) -> None:
    """Histograms of block requests by blkalgn.

    Its four dialects of JSON are told apart by what is in them. Each file is a cell of the run.
    """
    from storlab.cli.import_ import import_files

    options = {} if dialect is None else {"dialect": dialect}
    import_files("blkalgn", files, out, label or [], factor or [], options, interleaved)


@import_.command("fio")
def import_fio(
    paths: Paths,
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
) -> None:
    """Output of fio: JSON, JSON+ or terse, with its logs where they lie beside.

    Options that differ among the jobs become factors; runs with the same options are rounds, in the order of their
    times, or as given.
    """
    from storlab.cli.import_ import import_files

    import_files("fio", paths, out, label or [], factor or [], {}, interleaved)


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
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", readable=False, help="Text that sysbench printed.")],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
) -> None:
    """Text of sysbench: OLTP, fileio and others, with any report interval.

    Each file is a cell, or a round of one: files with the same label or levels are rounds, in order.
    """
    from storlab.cli.import_ import import_files

    import_files("sysbench", files, out, label or [], factor or [], {}, interleaved)


@import_.command("bonnie")
def import_bonnie(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", readable=False, help="What Bonnie++ printed, or its CSV.")
    ],
    out: ImportOut = None,
    label: Label = None,
    factor: Factor = None,
    interleaved: Interleaved = False,
) -> None:
    """Results of Bonnie++: CSV and text tables of all versions.

    A cell for each machine's name; several results of one name are its rounds.
    """
    from storlab.cli.import_ import import_files

    import_files("bonnie", files, out, label or [], factor or [], {}, interleaved)


@import_.command("csv")
def import_csv(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", readable=False, help="Tables whose first line names the columns.")
    ],
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value",
            metavar="COLUMN[:UNIT[:BETTER]]",
            help="Numbers: IOPS:1/s:higher, lat:ms:lower, or METRIC=COLUMN for another name. A unit in the heading "
            "need not be named.",
        ),
    ] = None,
    factor_column: Annotated[
        list[str] | None, typer.Option("--factor-column", metavar="NAME", help="A column that tells set-ups apart.")
    ] = None,
    metric_column: Annotated[
        str | None, typer.Option("--metric-column", metavar="NAME", help="The column that says what each number is of.")
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
    interleaved: Interleaved = False,
) -> None:
    """Any table, long or wide, with commas, semicolons or tabs.

    Wide: a row is a trial, with a --value for each column of numbers. Long: --metric-column says what each row's
    number is of. Rows with the same factors are rounds of one cell, in order or as --round-column numbers them; with
    --time-column, they are the series of one trial.
    """
    from storlab.cli.import_ import import_files

    columns = {"metric_column": metric_column, "round_column": round_column, "time_column": time_column}
    options: dict[str, Any] = {"value": value or [], "factor_column": factor_column or []}
    options |= {name: column for name, column in columns.items() if column is not None}
    import_files("csv", files, out, label or [], factor or [], options, interleaved)
