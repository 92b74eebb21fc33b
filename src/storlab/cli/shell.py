"""``storlab shell``."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from storlab.cli.failure import INTERRUPTED
from storlab.cli.images_of_study import build_images
from storlab.cli.progress import levels_text, observer
from storlab.errors import UserError
from storlab.layers.resources import Dir
from storlab.nodes.terminal import shell_on
from storlab.run.journal import read_pending
from storlab.run.look_around import standing_cell
from storlab.run.observer import Observer
from storlab.run.session import node_names
from storlab.run.temporary import temporary_folder
from storlab.study.cells import HOST, Cell
from storlab.study.messages import nearest
from storlab.study.study import Study, find_study, load_study


def shell(name: str, node: str | None, overrides: Sequence[str], only: Sequence[str], build: bool) -> int:
    """Put a cell up and give the user a shell on a node; returns the shell's exit status."""
    study = load_study(find_study(name), overrides, only)
    chosen = _chosen(study.cells[0], node)
    if build and (status := build_images(study, quiet=False)):
        return status
    with temporary_folder("storlab-shell-") as folder:
        try:
            with observer(quiet=True) as watching:
                return asyncio.run(_shell(study, chosen, folder / "run", watching))
        except asyncio.CancelledError:
            print("storlab: interrupted", file=sys.stderr)
            return INTERRUPTED
        finally:
            if not _stands(folder / "run"):
                shutil.rmtree(folder, ignore_errors=True)


def _stands(run: Path) -> bool:
    """Whether the journal names something that may still stand. Says so, and what to do."""
    if not read_pending(run / "journal.jsonl"):
        return False
    print(f"storlab: not everything could be taken down: `storlab clean {run}` tries again", file=sys.stderr)
    return True


async def _shell(study: Study, name: str, folder: Path, watching: Observer) -> int:
    print("Putting the cell up …", file=sys.stderr)
    async with standing_cell(study, folder, watching) as standing:
        stack = standing.stacks.get(name)
        resource = stack.resource if stack is not None else None
        path = getattr(resource, "path", None)
        what = [f"node {name}", *([path] if path else []), *filter(None, [levels_text(standing.cell.levels)])]
        greeting = f"Storlab: {', '.join(what)}. All is taken down when this shell ends."
        return await shell_on(standing.nodes[name], path if isinstance(resource, Dir) else None, greeting)


def _chosen(cell: Cell, node: str | None) -> str:
    """The node that the user names, else the first with a load. Raises ``UserError``."""
    names = [HOST, *(name for group, spec in cell.nodes.items() for name in node_names(group, spec))]
    if node is None:
        return next(name for load in cell.loads for group in load.on for name in node_names(group, cell.nodes[group]))
    if node not in names:
        has = nearest(node, names) or f"; there are: {', '.join(dict.fromkeys(names))}"
        raise UserError(f"there is no node {node!r}{has}")
    return node
