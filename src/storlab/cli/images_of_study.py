"""Building the guest images that a study needs, for ``--build``."""

from __future__ import annotations

import asyncio

from storlab.study.study import Study


def build_images(study: Study, quiet: bool) -> int:
    """Build what is absent; returns the exit status of that, 0 where there is nothing to build."""
    if not any(group.kind != "local" for cell in study.cells for group in cell.nodes.values()):
        return 0
    from storlab.cli import image
    from storlab.images.recipe import MIRROR

    for extras in asyncio.run(_wanted(study)):
        if status := image.build(sorted(extras), MIRROR, if_missing=True, quiet=quiet):
            return status
    return 0


async def _wanted(study: Study) -> list[frozenset[str]]:
    """What the images of the study's virtual machines must have; the larger ones first, they serve for less, too."""
    from storlab.run.executor import new_run_id
    from storlab.run.guest_plan import extras_of
    from storlab.run.placement import place
    from storlab.run.session import open_session
    from storlab.study.cells import HOST

    async with open_session(new_run_id(), [HOST]) as session:
        cells = (await place(study, session.host)).study.cells
    names = {name for cell in cells for name, group in cell.nodes.items() if group.kind == "vm" and not group.kernel}
    return sorted({extras_of(cells, name) for name in names}, key=len, reverse=True)
