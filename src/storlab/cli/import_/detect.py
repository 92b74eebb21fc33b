"""``storlab import FILE…``: which tool wrote the files, by what is in them; then the run, and its report at once."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from storlab.base.errors import UserError
from storlab.base.text import first, grouped, printable
from storlab.cli.import_.files import make_run
from storlab.cli.import_.options import ImportOptions
from storlab.cli.import_.paths import files_in, foreign, head_of, text_of, without_beside
from storlab.cli.output import show, warn
from storlab.tools.importer import importer_of
from storlab.tools.kinds import HEAD, KINDS, Signature, contained_in, importers, is_fio_log, signatures_in
from storlab.tools.passed_on import labels_of

_BEGINS = 40


def import_detected(options: ImportOptions) -> None:
    """Find out the kind, make the run, show its report. Raises ``UserError`` where the kind can't be told."""
    paths, found = _of_files(options.paths)
    kind = found[0].kind
    options = without_beside(replace(options, kind=kind, paths=paths))
    _refuse_options(options)
    if kind == "csv" and not options.of_kind.get("value"):
        raise UserError(_needs_columns(options.paths[0]))
    what = ", ".join(dict.fromkeys(signature.what for signature in found))
    show(printable(f"{first([str(path) for path in options.paths])}: recognised as {kind}, by {what}"))
    for path in options.paths:
        _warn_of_others(path, kind)
    folder, size = make_run(options)
    _report(folder, size)


def _of_files(paths: Sequence[Path]) -> tuple[list[Path], list[Signature]]:
    known: list[tuple[Path, Signature]] = []
    logs: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(_absent(path))
        if path.is_dir():
            known.append((path, _of_folder(path)))
        elif (signature := _of_file(path)) is not None:
            known.append((path, signature))
        else:
            logs.append(path)
    kinds = grouped((signature.kind, path) for path, signature in known)
    if len(kinds) > 1:
        raise UserError(_mixed(known))
    if logs and set(kinds) != {"fio"}:
        raise UserError(
            f"{logs[0]} is an fio log, which does not say what it measured: name the JSON that fio wrote with it; the "
            "log beside it is read too (fio --output-format=json+)"
        )
    return [path for path, _ in known], [signature for _, signature in known]


def _of_file(path: Path) -> Signature | None:
    text = text_of(path)
    if (said := foreign(text)) is not None:
        raise UserError(f"{path} {said}")
    others = (kind for kind, entry in importers().items() if entry.dist is not None)
    found = signatures_in(text) or [
        Signature(kind, f"what {kind} knows", "") for kind in others if importer_of(kind).knows(text)
    ]
    if len(found) == 1:
        return found[0]
    if not found and is_fio_log(text):
        return None
    raise UserError(_ambiguous(path, found) if found else _unknown(path, text))


def _of_folder(folder: Path) -> Signature:
    every = [(path, signature) for path in files_in(folder) for signature in signatures_in(text_of(path))]
    found = [(path, signature) for path, signature in every if signature.kind != "csv"] or every
    kinds = list(dict.fromkeys(signature.kind for _, signature in found))
    if not kinds:
        raise UserError(f"{folder}: no file in it is of a tool that Storlab reads; {_forced('KIND', folder)}")
    if len(kinds) > 1:
        raise UserError(_mixed(found))
    return found[0][1]


def _warn_of_others(path: Path, kind: str) -> None:
    if path.is_file():
        for signature in contained_in(kind, head_of(path)):
            said = f"not taken for {signature.kind}, though it has {signature.what}, which {kind} prints too"
            warn(printable(f"{path}: {said}; {_forced(signature.kind, path)}"))


def _refuse_options(options: ImportOptions) -> None:
    if options.clients and not importer_of(options.kind).clients:
        raise UserError(f"--clients is for fio, but {options.paths[0]} is {options.kind}: leave it out")
    for name, value in options.of_kind.items():
        kind = next(kind for kind, of in KINDS.items() if name in of.options)
        if value and kind != options.kind:
            option = name.replace("_", "-")
            raise UserError(f"--{option} is for {kind}, but {options.paths[0]} is {options.kind}: leave it out")


def _absent(path: Path) -> str:
    from difflib import get_close_matches

    near = get_close_matches(str(path), importers(), 1)
    meant = f"did you mean {near[0]}?" if near else f"kinds are {', '.join(sorted(importers()))}"
    return f"{path} is neither a file nor a kind of results: {meant}"


def _mixed(known: Sequence[tuple[Path, Signature]]) -> str:
    each = grouped((signature.kind, (path, signature)) for path, signature in known)
    said = "; ".join(f"{first([str(path) for path, _ in of])}: {kind}, by {of[0][1].what}" for kind, of in each.items())
    commands = ", ".join(_command(kind, [path for path, _ in of]) for kind, of in each.items())
    return f"these are files of several tools, and a run is of one ({said}): import them one after another: {commands}"


def _ambiguous(path: Path, found: Sequence[Signature]) -> str:
    said = " and ".join(f"{signature.what} ({signature.kind})" for signature in found)
    return f"{path} has {said}: say which counts: {' or '.join(_command(each.kind, [path]) for each in found)}"


def _unknown(path: Path, text: bytes) -> str:
    from storlab.suites.records.sources import zts_lines
    from storlab.suites.zts_text import read_results

    begins = printable(text[:HEAD].split(b"\n")[0][:_BEGINS].decode(errors="replace"))
    if any(read_results(zts_lines(text))):
        return (
            f"{path} is the console of a suite of pass/fail tests, which has no figures: `storlab suite history "
            f"{path}` reads it, and `storlab suite compare` two of them"
        )
    labels = labels_of(text)
    mixed = f"; lines of {', '.join(labels)} take turns in it: give each a file of its own" if labels else ""
    kinds = f"{_forced('KIND', path)}, of {', '.join(sorted(importers()))}"
    return (
        f'{path}: not recognised as the output of a tool that Storlab reads; it begins with "{begins}"{mixed}. '
        f"{kinds}. "
        f"Of any other tool: {_text(path)} reads its figures by a pattern for each, or --reader FILE; `storlab import "
        "csv` reads a table that you make of them; and a study runs it as a `command` with a pattern for each. "
        "`storlab import --help` has more"
    )


def _text(path: Path) -> str:
    return f"{_command('text', [path])[:-1]} --value 'iops=([0-9.]+) IOPS'`"


def _forced(kind: str, path: Path) -> str:
    return f"{_command(kind, [path])} reads it as one of {'that kind' if kind == 'KIND' else kind}"


def _command(kind: str, paths: Sequence[Path]) -> str:
    shown = [shlex.quote(str(path)) for path in paths[:3]] + (["…"] if len(paths) > 3 else [])
    return printable(f"`storlab import {kind} {' '.join(shown)}`")


def _needs_columns(path: Path) -> str:
    from storlab.tools.table.suggest import suggestion_for

    table = next(each for each in files_in(path) if signatures_in(head_of(each))) if path.is_dir() else path
    found = suggestion_for(head_of(table), str(table))
    if found is None:
        return (
            f"{table} is a table in which no column of numbers was found, so nothing is suggested; if one is, name it: "
            f"{_command('csv', [path])[1:-1]} --value COLUMN"
        )
    words = shlex.join(["storlab", "import", str(path), *found.words])
    return (
        f"{table} is a table: say which of its columns are numbers, whether higher or lower is better, and what tells "
        f"set-ups apart, such as: {words}" + (f". But first: {found.fault}" if found.fault else "")
    )


def _report(folder: Path, size: str) -> None:
    from storlab.cli.reporting import report_input, show_and_write
    from storlab.records.derive import tables_of
    from storlab.records.run_folder import RunFolder
    from storlab.run.planning.recorded import summary_of_run

    run = RunFolder.open(folder)
    tables = tables_of(run)
    show_and_write(run, report_input(run, tables, summary_of_run(run.manifest, tables)), size)
