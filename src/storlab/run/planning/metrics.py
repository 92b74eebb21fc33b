"""Which metrics a study's trials may have, and whether those are among them that it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from storlab.analysis.design import CompareSpec
from storlab.analysis.questions import Catalogue, Planned, each_planned
from storlab.base.errors import StudyError
from storlab.base.levels import amount_in
from storlab.base.units import shown
from storlab.metrics import END, Declarations
from storlab.run.planning.design import comparisons_of, design_of
from storlab.run.planning.yields import meant, metrics_of
from storlab.study.messages import nearest
from storlab.study.questions import Claim, Objective
from storlab.study.study import Study
from storlab.study.toml_text import Path


def metrics_of_study(study: Study) -> Declarations:
    found = {id(known): known for known in map(metrics_of, study.cells)}
    return Declarations.union((source, tuple(specs)) for known in found.values() for source, specs in known.items())


def refuse_unknown_metrics(study: Study) -> None:
    """Raise ``StudyError`` for a metric that the study asks for and no trial has, or by which nothing is comparable.

    What only cells yield that ``--only`` leaves out is not refused, nor asked for: see ``narrowed``.
    """
    try:
        _refuse_unknown(study)
    except StudyError:
        if not study.only:
            raise
        if (whole := study.whole()) is not None:
            _refuse_unknown(whole)


def narrowed(study: Study) -> Study:
    """``study`` without its questions by metrics that no cell yields which ``--only`` leaves; a note names them."""
    if not study.only:
        return study
    model, known, ends = study.model, metrics_of_study(study), _ends(study)
    left_out: dict[str, None] = {}

    def yields(name: str) -> bool:
        found = _end_of(name) in ("", *ends) and bool(meant(name, known))
        left_out.update({} if found else {name: None})
        return found

    compare = []
    for each in model.compare:
        metrics = tuple(filter(yields, each.metrics or (model.primary,)))
        if metrics:
            compare.append(each if each.metrics is None else each.model_copy(update={"metrics": metrics}))
    claim = [each for each in model.claim if yields(each.metric or model.primary)]
    slo = [each for each in model.slo if yields(each.metric)]
    if not left_out:
        return study
    asked = model.model_copy(update={"compare": tuple(compare), "claim": tuple(claim), "slo": tuple(slo)})
    note = f"no level that --only leaves yields {', '.join(left_out)}: nothing is asked about it"
    return replace(study, model=asked, notes=(*study.notes, note))


def _refuse_unknown(study: Study) -> None:
    cells, design = {cell.number: metrics_of(cell) for cell in study.cells}, design_of(study)
    ends = _ends(study)
    for path, name, comparisons in _asked(study, design.planned()):
        end = _end_of(name)
        if end and end not in ends:
            raise study.problem(
                path, f"{name!r} names no nodes of this study: what follows {END} must be {' or '.join(ends)}"
            )
        found = {id(known): meant(name, known) for known in cells.values()}
        metrics = {number: found[id(known)] for number, known in cells.items()}
        if not any(found.values()):
            names = dict.fromkeys(each for known in cells.values() for each in _names(known, ":" in name))
            listed = f": nothing in this study yields it; `storlab list --metrics {study.file}` lists what there is"
            raise study.problem(path, f"unknown metric {name!r}{nearest(name, names) or listed}")
        if path[0] in ("slo", "claim"):
            limited = getattr(study.model, path[0])[int(path[1])]
            _check_limits(study, limited, path[:2], {t.unit for traits in found.values() for t in traits.values()})
        by_it = tuple(replace(spec, metrics=(name,)) for spec in comparisons if design.pairs(spec))
        asked = replace(design, comparisons=by_it, claims=())
        planned = each_planned(asked, Catalogue(metrics, {})) if by_it else iter(())
        first = next(planned, None)
        if by_it and (first is None or first.problem) and all(item.problem for item in planned):
            why = first.problem if first is not None else "none of the levels that are compared has it."
            raise study.problem(path, f"nothing can be compared by {name!r}: {why}")


def _ends(study: Study) -> list[str]:
    """What a metric's end may be: the names of node groups."""
    return sorted({"host"}.union(*(cell.nodes for cell in study.cells)))


def _end_of(name: str) -> str:
    return name.rpartition(":")[0].partition(END)[2]


def _check_limits(study: Study, asked: Claim | Objective, path: Path, units: Iterable[str]) -> None:
    """Raise ``StudyError`` if a limit is no amount in the unit of its metric."""
    limits = {key: limit for key in ("below", "above", "between") if (limit := getattr(asked, key, None)) is not None}
    for unit, (key, limit) in product(units, limits.items()):
        try:
            ends = [amount_in(each, unit) for each in (limit if isinstance(limit, tuple) else (limit,))]
            if isinstance(asked, Objective) and not ends[0] > 0:
                raise ValueError(f"the limit is {shown(limit)}; it must be above 0")
            if len(ends) == 2 and not ends[0] < ends[1]:
                raise ValueError("its first number must be the smaller one")
        except ValueError as error:
            raise study.problem((*path, key), str(error)) from None


def foreseen(study: Study, unsupported: Mapping[int, Sequence[str]], emulated: bool = False) -> list[Planned]:
    """The comparisons that the study asks for, as far as they are known before it runs.

    ``unsupported``: cell → why.
    """
    cells = {cell.number: metrics_of(cell) for cell in study.cells}
    design = design_of(study, emulated=emulated)
    reasons = {number: " ".join(why) for number, why in unsupported.items()}
    found: dict[tuple[object, ...], Planned] = {}
    for spec in design.planned():
        for name in spec.metrics or (design.primary,):
            metrics = {number: meant(name, known) for number, known in cells.items()}
            asked = replace(design, comparisons=(replace(spec, metrics=(name,)),), claims=())
            for item in each_planned(asked, Catalogue(metrics, reasons)):
                q = item.question
                if q.mirrored not in found:
                    found.setdefault(q.key, item)
    return list(found.values())


def _asked(study: Study, planned: Sequence[CompareSpec]) -> Iterator[tuple[Path, str, Sequence[CompareSpec]]]:
    by_primary = [spec for spec in planned if spec.metrics is None]
    if by_primary or "primary" in study.model.model_fields_set:
        yield ("primary",), study.model.primary, by_primary
    compared = comparisons_of(study)
    for at, spec in enumerate(study.model.compare):
        for number, name in enumerate(spec.metrics or ()):
            yield ("compare", at, "metrics", number), name, compared[at]
    for at, claim in enumerate(study.model.claim):
        if claim.metric is not None or claim.expect is None:
            yield ("claim", at, "metric"), claim.metric or study.model.primary, ()
    for at, objective in enumerate(study.model.slo):
        yield ("slo", at, "metric"), objective.metric, ()


def _names(known: Declarations, with_source: bool) -> Iterator[str]:
    for source, specs in known.items():
        yield from (f"{source}:{each.name}" if with_source else each.name for each in specs.numbers() if not each.word)
