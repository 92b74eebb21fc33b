"""The presets ``zfs-versions`` and ``zfs-async-dio``: builds of ZFS of one's own, as cells, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from storlab.errors import StudyError
from storlab.layers.zfs.pool import ZpoolLayer
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.run.planning.metrics import metrics_of_study, refuse_unknown_metrics
from storlab.study.cells import Cell
from storlab.study.study import load_study, preset_studies

VERSIONS, ASYNC = (preset_studies()[name] for name in ("zfs-versions", "zfs-async-dio"))


def guest_of(cell: Cell) -> VmKind:
    spec = cell.nodes["vm"].spec()
    assert isinstance(spec, VmKind)
    return spec


def fio_of(cell: Cell) -> dict[str, object]:
    (load,) = cell.loads
    return dict(load.workload.__pydantic_extra__ or {})


def module_of(cell: Cell) -> dict[str, object]:
    (pool,) = [layer for chain in cell.chains for layer in chain.layers if isinstance(layer, ZpoolLayer)]
    return dict(pool.module)


@pytest.mark.parametrize("settings", [(), ("profile=full",)])
def test_versions_differ_in_their_tree_and_in_nothing_else(settings: tuple[str, ...]) -> None:
    cells = load_study(VERSIONS, ["old=/srv/zfs-2.2.8", "new=/srv/zfs-2.3.4", *settings]).cells
    assert len(cells) == 16
    trees = {"old": "/srv/zfs-2.2.8", "new": "/srv/zfs-2.3.4"}
    of: dict[str, list[tuple[object, ...]]] = {}
    for cell in cells:
        spec = guest_of(cell)
        assert spec.zfs_tree == trees[cell.levels["version"]]
        same = spec.model_copy(update={"zfs_tree": None}), cell.chains[-1].layers, fio_of(cell)
        of.setdefault(cell.levels["version"], []).append(same)
    assert of["old"] == of["new"]


def test_each_way_to_write_and_read_is_with_and_without_direct_io_and_compression() -> None:
    for cell in load_study(VERSIONS).cells:
        fio, levels = fio_of(cell), cell.levels
        assert (fio["rw"], fio["direct"]) == (levels["load"], levels["access"] == "direct")


def test_asynchronous_requests_are_a_parameter_of_one_tree() -> None:
    cells = load_study(ASYNC, ["tree=/srv/zfs"]).cells
    assert {guest_of(cell).zfs_tree for cell in cells} == {"/srv/zfs"} and len(cells) == 8
    for cell in cells:
        assert module_of(cell) == {"zfs_dio_enabled": 1, "zfs_async_dio_enabled": int(cell.levels["async"] == "on")}
        assert (fio_of(cell)["direct"], str(fio_of(cell)["iodepth"])) == (True, cell.levels["depth"])


@pytest.mark.parametrize("path", [VERSIONS, ASYNC])
def test_their_claims_are_about_what_they_measure(path: Path) -> None:
    study = load_study(path)
    refuse_unknown_metrics(study)
    assert all(claim.native or claim.at for claim in study.model.claim) and study.model.claim
    assert {"probe:locks", "probe:profile", "probe:zfs"} <= set(metrics_of_study(study))


def test_a_claim_by_a_group_of_locks_that_nobody_declared_is_refused() -> None:
    study = load_study(ASYNC, ['claim.2.metric="probe:locks:waits.metaslab"'])
    with pytest.raises(StudyError, match=r"unknown metric 'probe:locks:waits\.metaslab'"):
        refuse_unknown_metrics(study)
