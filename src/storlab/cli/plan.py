"""``storlab plan``."""

from __future__ import annotations

import asyncio
import json as json_module
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from storlab.study.cells import Cell
from storlab.study.study import find_study, load_study
from storlab.units import size_text

if TYPE_CHECKING:
    from storlab.run.plan import Plan


def plan(
    name: str, overrides: Sequence[str], only: Sequence[str], rounds: int | None, seed: int | None, json: bool
) -> None:
    """Print what a run would do. Looks at the nodes, changes nothing."""
    study = load_study(find_study(name), overrides, only)

    # Slow to import, so only once there is a study to plan.
    from storlab.cli.run import rounds_of
    from storlab.run.executor import new_run_id
    from storlab.run.plan import make_plan
    from storlab.run.session import open_session, wanted_nodes

    async def look() -> Plan:
        async with open_session(new_run_id(), wanted_nodes(study.cells)) as session:
            return await make_plan(study, session, seed or 0, rounds_of(study, rounds))

    made = asyncio.run(look())
    if json:
        print(json_module.dumps(_as_dict(made, seed), indent=2))
    else:
        _print(made, seed)


def _as_dict(made: Plan, seed: int | None) -> dict[str, object]:
    order = {str(number): [trial.cell for trial in made.order(number)] for number in range(1, made.rounds[1] + 1)}
    return {
        "title": made.study.model.title,
        **made.as_dict(),
        "rounds": {"min": made.rounds[0], "max": made.rounds[1]},
        "seed": seed,
        "order": order if seed is not None else None,
        "space": {name: {"needed": made.space[name], "free": made.free[name]} for name in made.space},
        "root_needed_for": list(made.root_needed_for),
        "seconds_per_round": made.round_time(),
        "notes": list(made.notes),
    }


def _print(made: Plan, seed: int | None) -> None:
    console = Console(highlight=False)
    console.print(Text(made.study.model.title, style="bold"))
    if made.study.model.description:
        console.print(Text(made.study.model.description, style="dim"))
    console.print()
    console.print(_cells(made))
    for cell in made.study.cells:
        for reason in made.unsupported.get(cell.number, ()):
            console.print(Text(f"Cell {cell.number} is unsupported here: {reason}", style="yellow"))
    console.print()
    for label, text in _facts(made, seed):
        console.print(Text(f"{label:<11}", style="cyan") + Text(text), soft_wrap=True)
    for note in made.notes:
        console.print(Text(f"Note: {note}", style="yellow"))


def _cells(made: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("cell", justify="right", style="cyan")
    for factor in made.study.factors:
        table.add_column(factor.name)
    table.add_column("stack", overflow="fold")
    table.add_column("load")
    for cell in made.study.cells:
        mark = "dim" if cell.number in made.unsupported else ""
        loads = ", ".join(load.name for load in cell.loads)
        row = [str(cell.number), *cell.levels.values(), _stack_text(cell), loads]
        table.add_row(*(Text(value) for value in row), style=mark)
    return table


def _stack_text(cell: Cell) -> str:
    texts = []
    for name, layers in cell.stacks.items():
        prefix = f"{name}: " if len(cell.stacks) > 1 else ""
        texts.append(prefix + " → ".join(layer.label() for layer in layers))
    return "; ".join(texts)


def _facts(made: Plan, seed: int | None) -> list[tuple[str, str]]:
    least, most = made.rounds
    cells = len(made.supported)
    rounds = f"{least}" if least == most else f"{least} to {most}"
    trials = f"{cells * least}" if least == most else f"{cells * least} to {cells * most}"
    facts = [("Trials", f"{trials} ({cells} cells, {rounds} rounds)"), ("Time", _time(made))]
    if seed is None:
        facts.append(("Order", "each round in a random order of its own; --seed N shows and fixes it"))
    else:
        first = made.order(1)
        shown = ", ".join(str(trial.cell) for trial in first)
        facts.append(("Order", f"seed {seed}; cells of round 1: {shown}"))
    node = "host" if "host" in made.space else next(iter(made.space))
    free = f"{made.free[node] // 1024**3}G free in {made.study.model.scratch}"
    facts.append(("Disk space", f"{size_text(made.space[node])} of {free}" if made.space[node] else f"none ({free})"))
    needed = ", ".join(made.root_needed_for)
    facts.append(("Privileges", f"root, for {needed}" if needed else "none"))
    facts.append(("Seen by", ", ".join(next(iter(made.study.cells)).probes) or "no probe"))
    facts.append(("Question", _question(made)))
    return facts


def _time(made: Plan) -> str:
    each = made.round_time()
    if each is None:
        return "unknown before the first round: a load runs until its work is done, not for a time"
    from storlab.report.format import duration

    least, most = (duration(round(each * rounds)) for rounds in made.rounds)
    return f"about {least}" if least == most else f"about {least} to {most}"


def _question(made: Plan) -> str:
    from storlab.cli.progress import levels_text

    if not made.study.factors:
        return "none: without factors there is nothing to compare"
    factor = made.study.factors[0]
    others = levels_text({other.name: "fixed" for other in made.study.factors[1:]}) if made.study.factors[1:] else ""
    levels = ", ".join(level.label for level in factor.levels)
    rest = f", with {others}" if others else ""
    return f"{made.study.model.primary} between the levels of {factor.name} ({levels}){rest}"
