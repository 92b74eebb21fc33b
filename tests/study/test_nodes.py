"""Nodes in studies: hardware by cell, which groups a cell starts, what loads run on; profiles of parameters."""

import pytest

from laboratory.samples import sample
from laboratory.studies import parsed
from storlab.base.errors import StudyError, UserError
from storlab.layers.resources import Dir
from storlab.study.cells import Cell, Target
from storlab.study.chains import ends_as
from storlab.study.study import Study

LOAD = '[workload.load]\nfio = { rw = "write", size = "1M" }\n'
ON_STORAGE = sample(__file__, "cases/on-storage.toml")


def study(text: str, *overrides: str) -> Study:
    return parsed(f'title = "x"\n{text}\n{LOAD if "[workload" not in text else ""}', *overrides)


def cell(text: str, *overrides: str) -> Cell:
    (only,) = study(text, *overrides).cells
    return only


def test_every_key_of_the_hardware_may_be_a_factor() -> None:
    cells = study(
        'stack = [{ layer = "directory" }]\n[factors]\nmemory = ["256M", "1G"]\nstart = ["cold", "restored"]\n'
        'boot = ["quiet", "mitigations=off"]\n[nodes.vm]\nkind = "vm"\nmemory = "{memory}"\nstart = "{start}"\n'
        'kernel_args = "{boot}"\n'
    ).cells
    specs = [each.nodes["vm"].spec().model_dump() for each in cells]
    found = [(spec["memory"], spec["start"], spec["kernel_args"]) for spec in specs]
    assert len(set(found)) == len(cells) == 8 and (256 * 1024**2, "cold", "mitigations=off") in found


def test_groups_come_after_those_whose_stack_they_continue_and_only_serve_unless_they_have_a_load() -> None:
    made = cell(ON_STORAGE)
    assert [*made.nodes] == ["storage", "vm"]
    assert [chain.group for chain in made.chains] == ["storage", "vm"]
    assert made.serving == {"storage"}
    assert [load.groups for load in made.loads] == [("vm",)], "what serves others has no load unless it is given one"
    assert made.networked("storage"), "QEMU opens over the network what is served from a guest"
    both = '[workload.load]\non = ["vm", "storage"]\nfio = { rw = "write", size = "1M" }\n'
    assert cell(ON_STORAGE + both).serving == set()


def test_the_studys_stack_is_that_of_nodes_that_have_none_and_a_load() -> None:
    made = cell(
        'stack = [{ layer = "file", size = "1G" }, { layer = "virtio-blk" }]\n'
        '[nodes.a]\nkind = "vm"\n[nodes.b]\nkind = "vm"\n'
        '[workload.load]\non = "a"\nfio = { rw = "write", size = "1M" }\n'
    )
    chain = made.chain("a")
    assert chain is not None and [link.origin for link in chain.links] == [("stack", 0), ("stack", 1)]
    assert made.chain("b") is None


def test_nodes_that_would_have_served_are_not_started_where_no_level_crosses_from_them() -> None:
    local, crossing = study(
        """
        [factors.transport]
        local = []
        nbd = [{ layer = "nbd-export" }, { layer = "nbd" }]
        [nodes.server]
        kind = "vm"
        stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
        [nodes.client]
        kind = "vm"
        from = "server"
        stack = ["{transport}", { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
        """
    ).cells
    assert ([*local.nodes], [*crossing.nodes]) == (["client"], ["server", "client"])
    assert not local.networked("client") and crossing.networked("client") and crossing.networked("server")


def test_clients_are_before_those_who_serve_them_where_caches_are_flushed() -> None:
    made = cell(
        """
        [nodes.store]
        kind = "vm"
        stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
        [nodes.server]
        kind = "vm"
        from = "store"
        stack = [{ layer = "nbd-export" }, { layer = "nbd" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
        [nodes.client]
        kind = "vm"
        from = "server"
        stack = [{ layer = "nfs-export" }, { layer = "nfs" }]
        [nodes.other]
        kind = "vm"
        stack = [{ layer = "directory" }]
        """
    )
    assert made.outward == [["client", "other"], ["server"], ["store"]]


def test_a_load_runs_on_a_further_chain_by_its_name() -> None:
    made = cell(
        '[nodes.vm]\nkind = "vm"\nstack = [{ layer = "directory" }]\n'
        'extra.share = { stack = [{ layer = "directory" }, { layer = "9p" }] }\n'
        '[workload.load]\non = "vm:share"\nshared_files = "same"\nfio = { rw = "write", size = "1M" }\n'
    )
    (load,) = made.loads
    assert (load.on, load.same_files) == ((Target("vm", "share"),), True)
    assert ends_as(made.all_chains["vm", "share"], made.all_chains) is Dir


PROFILES = sample(__file__, "cases/profiles.toml")


@pytest.mark.parametrize(
    ("overrides", "values"),
    [
        ((), {"size": "1M", "time": "1s"}),
        (("profile=full",), {"size": "1G", "time": "1s"}),
        (("profile=long",), {"size": "1M", "time": "1h"}),
        (("profile=full", "size=2G"), {"size": "2G", "time": "1s"}),
        (("size=2G", "profile=full"), {"size": "2G", "time": "1s"}),
        (("profiles.full.time=5s", "profile=full"), {"size": "1G", "time": "5s"}),
    ],
)
def test_a_profile_changes_parameters_and_what_is_set_by_itself_counts_more(
    overrides: tuple[str, ...], values: dict[str, str]
) -> None:
    assert dict(study(PROFILES, *overrides).model.parameters) == values


def test_a_profile_that_is_not_there_is_refused_with_the_ones_that_are() -> None:
    with pytest.raises(UserError, match=r"unknown profile 'ful'; did you mean 'full'\?"):
        study(PROFILES, "profile=ful")


def test_what_does_not_fit_is_reported_where_it_was_written() -> None:
    with pytest.raises(StudyError) as raised:
        study(ON_STORAGE.replace('{ layer = "file", size = "64M" }', '{ layer = "loop" }'))
    (problem,) = raised.value.problems
    assert (problem.key, problem.line) == ("nodes.vm.stack[2]", 9)
