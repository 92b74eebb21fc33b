"""All importers by the name of their tool. A new one is a module, a case here, and a command in ``cli/commands/``."""

from __future__ import annotations

from storlab.errors import RecordsError
from storlab.records.importers.base import Importer


def importer_of(kind: str) -> Importer:
    """The importer of this name. Raises ``RecordsError`` where there is none: a newer Storlab made the run."""
    match kind:  # each loads its own parsers, and not those of the others
        case "blkalgn":
            from storlab.records.importers.blkalgn import BlkalgnImporter

            return BlkalgnImporter()
        case "bonnie":
            from storlab.records.importers.bonnie import BonnieImporter

            return BonnieImporter()
        case "csv":
            from storlab.records.importers.table import TableImporter

            return TableImporter()
        case "fio":
            from storlab.records.importers.fio import FioImporter

            return FioImporter()
        case "sysbench":
            from storlab.records.importers.sysbench import SysbenchImporter

            return SysbenchImporter()
        case "virtiofs-tests":
            from storlab.records.importers.virtiofs_tests import VirtiofsTestsImporter

            return VirtiofsTestsImporter()
        case _:
            raise RecordsError(f"the run was imported from {kind}, which this version of Storlab can't read")
