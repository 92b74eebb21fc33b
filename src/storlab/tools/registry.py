"""All importers by the name of their tool. A new one is a module, a line here, and a command in ``cli/import_/``.

A package of somebody else's adds importers without a line here, through the entry-point group ``storlab.importers``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from storlab.errors import RecordsError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from storlab.tools.importer import Importer

GROUP = "storlab.importers"
_BUILT_IN = {
    "blkalgn": "storlab.tools.blkalgn.importer:BlkalgnImporter",
    "bonnie": "storlab.tools.bonnie.importer:BonnieImporter",
    "csv": "storlab.tools.table.importer:TableImporter",
    "elbencho": "storlab.tools.elbencho.importer:ElbenchoImporter",
    "falcon": "storlab.tools.fio.importer:FalconImporter",
    "fio": "storlab.tools.fio.importer:FioImporter",
    "pcap": "storlab.tools.pcap.importer:PcapImporter",
    "pgbench": "storlab.tools.pgbench.importer:PgbenchImporter",
    "sysbench": "storlab.tools.sysbench.importer:SysbenchImporter",
    "vdbench": "storlab.tools.vdbench.importer:VdbenchImporter",
    "virtiofs-tests": "storlab.tools.virtiofs_tests:VirtiofsTestsImporter",
    "zfs-perf": "storlab.tools.zfs_perf:ZfsPerfImporter",
}
"""Written as entry points are, so that each loads its own parsers, and not those of the others."""


@cache
def importers() -> dict[str, EntryPoint]:
    """Kind → where its class is, of all that there are; nothing is loaded. A built-in one's name is taken."""
    from importlib.metadata import EntryPoint, entry_points  # with all that reads mail headers

    found = {kind: EntryPoint(kind, place, GROUP) for kind, place in _BUILT_IN.items()}
    return {entry.name: entry for entry in entry_points(group=GROUP)} | found


def importer_of(kind: str) -> Importer:
    """The importer of this name. Raises ``RecordsError`` where there is none."""
    if kind in _BUILT_IN:
        module, _, name = _BUILT_IN[kind].partition(":")
        built_in: Importer = getattr(import_module(module), name)()
        return built_in
    found = importers().get(kind)
    if found is None:
        raise RecordsError(
            f"no importer of {kind} is installed: a newer version of Storlab, or an extension, imported the run"
        )
    importer: Importer = found.load()()
    return importer
