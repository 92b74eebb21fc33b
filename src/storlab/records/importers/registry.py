"""All importers by the name of their tool. A new one is a module, a line here, and a command in ``cli/commands/``."""

from __future__ import annotations

from storlab.errors import RecordsError
from storlab.records.importers.base import Importer
from storlab.records.importers.blkalgn import BlkalgnImporter
from storlab.records.importers.bonnie import BonnieImporter
from storlab.records.importers.fio import FioImporter
from storlab.records.importers.sysbench import SysbenchImporter
from storlab.records.importers.table import TableImporter
from storlab.records.importers.virtiofs_tests import VirtiofsTestsImporter

IMPORTERS: dict[str, Importer] = {
    importer.kind: importer
    for importer in (
        BlkalgnImporter(),
        BonnieImporter(),
        FioImporter(),
        SysbenchImporter(),
        TableImporter(),
        VirtiofsTestsImporter(),
    )
}


def importer_of(kind: str) -> Importer:
    """The importer of this name. Raises ``RecordsError`` where there is none: a newer Storlab made the run."""
    if kind not in IMPORTERS:
        raise RecordsError(f"the run was imported from {kind}, which this version of Storlab can't read")
    return IMPORTERS[kind]
