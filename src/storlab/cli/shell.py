"""``storlab shell``: one cell of a study, set up, and a shell in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.base.text import one_line
from storlab.cli.options import Allow, Only, Set, String, StudyName, StudyOptions
from storlab.cli.output import warn
from storlab.cli.status import INTERRUPTED

if TYPE_CHECKING:
    from pathlib import Path

    from storlab.run.observer import Observer
    from storlab.run.permissions import Permissions
    from storlab.study.cells import Cell
    from storlab.study.study import Study


def shell(
    study: StudyName,
    node: Annotated[String, Argument(metavar="NODE", help="By default the first with a load.")] = None,
    set_: Set = None,
    only: Only = None,
    allow: Allow = None,
    build: Annotated[bool, Option("--build", help="Build the guest images that it needs, where absent.")] = False,
) -> None:
    """Set up one cell of a study and open a shell on one of its nodes.

    The first cell of those that --only leaves. All is torn down when the shell ends.
    """
    options = StudyOptions(study, set_ or [], only or [], allow=tuple(allow or ()))
    loaded = options.load()
    chosen = _chosen(loaded.cells[0], node)
    if build:
        from storlab.cli.image import build_images

        if status := build_images(loaded, quiet=False):
            raise typer.Exit(status)
    raise typer.Exit(_shell(loaded, chosen, options.permissions(loaded)))


def _shell(study: Study, node: str, permissions: Permissions) -> int:
    import asyncio
    import shutil

    from storlab.cli.progress import observer
    from storlab.run.recovery.temporary import temporary_folder

    with temporary_folder("storlab-shell-") as folder:
        try:
            with observer(quiet=True) as watching:
                return asyncio.run(_session(study, node, folder / "run", watching, permissions))
        except asyncio.CancelledError:
            warn("storlab: interrupted")
            return INTERRUPTED
        finally:
            if not _stands(folder / "run"):
                shutil.rmtree(folder, ignore_errors=True)


def _stands(run: Path) -> bool:
    """Whether the journal names something that may still stand. Says so, and what to do."""
    from storlab.run.recovery.journal import read_pending

    if not read_pending(run / "journal.jsonl"):
        return False
    warn(f"storlab: not everything could be torn down: `storlab clean {run}` tries again")
    return True


async def _session(study: Study, name: str, folder: Path, watching: Observer, permissions: Permissions) -> int:
    from storlab.cli.run_events import levels_text
    from storlab.layers.resources import Dir
    from storlab.nodes.terminal import shell_on
    from storlab.run.beginning import shell_session
    from storlab.study.cells import MAIN

    warn("Setting up the cell …")
    async with shell_session(study, folder, watching, permissions) as built:
        stack = built.stacks.get((name, MAIN))
        resource = stack.resource if stack is not None else None
        path = getattr(resource, "path", None)
        what = [f"node {name}", *([path] if path else []), *filter(None, [levels_text(built.cell.levels)])]
        greeting = one_line(f"Storlab: {', '.join(what)}. All is torn down when this shell ends.")
        return await shell_on(built.nodes[name], path if isinstance(resource, Dir) else None, greeting)


def _chosen(cell: Cell, node: str | None) -> str:
    """The node that the user names, else the first with a load. Raises ``UserError``."""
    from storlab.study.cells import HOST, node_names
    from storlab.study.messages import nearest

    names = [HOST, *(name for group, spec in cell.nodes.items() for name in node_names(group, spec))]
    if node is None:
        return next(
            name for load in cell.loads for group in load.groups for name in node_names(group, cell.nodes[group])
        )
    if node not in names:
        has = nearest(node, names) or f"; there are: {', '.join(dict.fromkeys(names))}"
        raise UserError(f"there is no node {node!r}{has}")
    return node
