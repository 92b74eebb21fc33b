"""Each node beside the others: estimates of what a study asks about, node by node, where several nodes have it.

They describe, as all estimates do. Verdicts rest on all nodes together.
"""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl

from storlab.analysis.design import Design
from storlab.analysis.estimates import estimates
from storlab.analysis.questions import Catalogue, matching
from storlab.analysis.series import collect
from storlab.analysis.summary import HOST, Estimate
from storlab.measurements import END, PROBE
from storlab.metrics import Key

_SIDE_BY_SIDE: tuple[Key, ...] = ((f"{PROBE}stalls", "stall.longest"), (f"{PROBE}stalls", "machine.stall.longest"))
_OF_THE_HOST: tuple[Key, ...] = tuple(
    (f"{PROBE}host-load{end}", f"load.{span}") for end in ("", f"{END}{HOST}") for span in ("1m", "5m", "15m")
)


def node_estimates(
    metrics: pl.DataFrame, done: pl.DataFrame, design: Design, catalogue: Catalogue
) -> tuple[Estimate, ...]:
    """By node, in the order of their names: what is compared, and stalls; of the host its load averages.

    ``metrics`` as in ``docs/reference/records.md``; ``done`` has a column ``trial``, one for each cell and round.
    """
    cells = dict(design.cells)
    found: list[Estimate] = []
    rows = _wanted(metrics, [*_asked(design, catalogue), *_SIDE_BY_SIDE])
    several = rows.group_by("cell", "source", "metric").agg(pl.col("node").n_unique()).filter(pl.col("node") > 1)
    rows = rows.join(several, on=["source", "metric"], how="semi", maintain_order="left")
    hosts = _wanted(metrics.filter(pl.col("node") == HOST), _OF_THE_HOST)
    for part in (rows, hosts):
        for node in sorted(part["node"].unique(), key=numbered):
            recorded = collect(part, done, list(cells), node)
            of_node = estimates(recorded, cells, design.confidence, design.min_rounds)
            found += [replace(estimate, node=node) for estimate in of_node]
    return tuple(found)


def numbered(name: str) -> list[tuple[str, int]]:
    """Sorts ``vm-2`` before ``vm-10``."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", name)]


def _asked(design: Design, catalogue: Catalogue) -> list[Key]:
    """What the study compares."""
    names = [design.primary, *(name for spec in design.planned() for name in spec.metrics or ())]
    found = [key for metrics in catalogue.metrics.values() for name in names for key in matching(name, metrics)]
    return list(dict.fromkeys(found))


def _wanted(metrics: pl.DataFrame, keys: list[Key] | tuple[Key, ...]) -> pl.DataFrame:
    """Rows of single nodes, all jobs together, with these sources and metrics."""
    wanted = pl.DataFrame(list(dict.fromkeys(keys)), schema={"source": pl.String, "metric": pl.String}, orient="row")
    single = metrics.filter(pl.col("node").is_not_null(), pl.col("job").is_null())
    return single.join(wanted, on=["source", "metric"], how="semi", maintain_order="left")
