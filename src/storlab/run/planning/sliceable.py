"""Whether cells can work in slices, or at once: what is refused before anything runs, and what is said of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from storlab.nodes.agent.events import MAX_TURNS
from storlab.run.trial.subjects import watched_groups
from storlab.study.cells import Cell, Load, node_names
from storlab.study.study import Study

_PLACE = ("trial", "slices")


def refuse_unsliceable(study: Study, cells: Sequence[Cell]) -> None:
    """Raise ``StudyError`` where a study asks for slices that some cell can't work in, with the reason."""
    ways = {(cell.trial.slices, cell.trial.parallel) for cell in cells}
    if ways <= {(None, False)}:
        return
    if len(ways) > 1:
        raise study.problem(("trial",), "all cells of a round work alike: write slices and parallel without factors")
    ((length, parallel),) = ways
    what = "parallel" if parallel else "slices"
    for cell in cells:
        groups = {name for load in cell.loads for name in load.groups}
        if sum(len(node_names(name, cell.nodes[name])) for name in groups) > 1:
            raise study.problem(("trial", what), f"its loads would be on several nodes at once: leave out {what}")
        for load in cell.loads:
            if reason := _reason(cell, load):
                message = f"{load.name} cannot be paused and resumed: {reason}; or leave out [trial] {what}"
                raise study.problem(("workload", load.name), message)
            seconds = (load.workload.duration(0.0) or 0.0) + cell.trial.warm_up
            if length is not None and math.ceil(seconds / length) > MAX_TURNS:
                message = f"{load.name} would have {math.ceil(seconds / length)} slices a round, of at most {MAX_TURNS}"
                raise study.problem(_PLACE, f"{message}: make them longer, or its runtime shorter")


def _reason(cell: Cell, load: Load) -> str:
    layers = [link.layer for chain in cell.chains for link in chain.links]
    later = next((layer.label() for layer in layers if layer.flush), "")
    return load.workload.unsliceable(later)


def about_slices(cells: Sequence[Cell]) -> Iterator[str]:
    """What a reader of the plan and of the results must know of them."""
    trial = next((cell.trial for cell in cells), None)
    if trial is None or not trial.side_by_side:
        return
    if trial.slices is None:
        yield (
            "The cells of a round are set up side by side and work at the same time: this says how they fare against "
            "each other, and not how fast each of them is by itself."
        )
    else:
        yield (
            f"The cells of a round are set up side by side and work in turns of {trial.slices:g} s, in an order drawn "
            "by lot; rates are over the time for which each worked."
        )
    left_out = {
        name: None
        for cell in cells
        for name, probe in cell.probes.items()
        if not probe.in_slices and watched_groups(probe, cell)
    }
    if left_out:
        yield f"Left out, as they can't tell whose turn it is: {', '.join(left_out)}."
