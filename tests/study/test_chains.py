"""Chains: which layer is set up on which node, for how long, and which nodes share it.

Those of the shipped studies have golden files, a line for each chain, equal cells together: ``below | above`` a
crossing; a star marks what all nodes of the group share, brackets what is kept beyond a trial.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laboratory.samples import sample
from storlab.layers.base import KEEPS, Crossing, Layer, LayerContext
from storlab.layers.resources import Dir, Resource, Server
from storlab.registry import layer_types
from storlab.study.cells import Cell
from storlab.study.chains import MAIN, Chain, ChainError, Chains, Declared, Link, ends_as, resolve, started
from storlab.study.schema import NodeGroup, group_model
from storlab.study.study import load_study, shipped_studies


class Database(Layer):
    layer: Literal["database"] = "database"
    takes: ClassVar = (Dir,)
    gives: ClassVar = Server

    async def set_up(self, below: Resource | None, context: LayerContext) -> Resource:
        raise AssertionError("chains are resolved, not set up")


LAYERS: dict[str, type[Layer]] = {**layer_types(), "database": Database}


def chains(groups: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, NodeGroup], Chains]:
    """The groups of a study's ``nodes`` and their chains, without all else that a study has."""
    models, declared = {}, []
    for name, keys in groups.items():
        group = models[name] = group_model(keys.get("kind", "local")).model_validate(keys)
        stacks = {MAIN: (group.source, group.stack, 1)}
        stacks |= {extra: (each.source, each.stack, each.count) for extra, each in group.extra.items()}
        for extra, (source, stack, count) in stacks.items():
            if stack is not None:
                path = ("nodes", name, *(("extra", extra) if extra else ()), "stack")
                layers = tuple(LAYERS[tree["layer"]].model_validate(tree) for tree in stack)
                origins = tuple((*path, index) for index in range(len(layers)))
                declared.append(Declared(name, extra, source, layers, origins, path, count))
    return models, resolve(models, declared)


def written(nodes: str) -> Chains:
    return chains(tomllib.loads(nodes)["nodes"])[1]


def names(chain: Chain) -> str:
    """``file*:trial | virtio-blk:trial``: what all nodes share bears a star, the bar is where the chain crosses."""
    parts = [
        " ".join(f"{link.layer.layer}{'*' if link.once else ''}:{link.keep}" for link in links)
        for links in (chain.below, chain.above)
    ]
    return " | ".join(parts)


STORE = sample(__file__, "cases/store.toml")

CASES = dict(case.split("\n", 1) for case in sample(__file__, "cases/chains.txt").split("## ")[1:])


@pytest.mark.parametrize("case", CASES)
def test_chains_are_those_of_the_case(case: str) -> None:
    nodes, expected = CASES[case].replace("STORE\n", STORE).split("\n\n")
    found = written(nodes)
    assert [f"{group} {name or '='} {names(chain)}" for (group, name), chain in found.items()] == expected.splitlines()


def test_a_chain_knows_its_source_how_many_it_is_for_and_what_its_end_gives() -> None:
    three, four, shared = (written(CASES[case].split("\n\n")[0].replace("STORE\n", STORE)) for case in list(CASES)[:3])
    assert [chain.source for chain in three.values()] == ["host", "store", "db"]
    assert ends_as(three["client", MAIN], three) == Server
    assert (four["vm", "d"].count, four["vm", MAIN].crossing, shared["c", MAIN].shared) == (3, None, 3)


SERVED = """
[nodes.server]
kind  = "{kind}"
stack = [{{ layer = "file", size = "1G" }}, {{ layer = "virtio-blk", logical_block_size = 4096 }}]
[nodes.client]
kind  = "{client}"
from  = "server"
stack = [{{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount" }}]
"""


def test_without_a_crossing_the_servers_ends_on_the_client_or_becomes_a_loop_device_with_its_sectors_here() -> None:
    nodes = tomllib.loads(SERVED.format(kind="vm", client="vm"))["nodes"]
    groups, found = chains(nodes)
    client = found["client", MAIN]
    assert names(client) == "file:trial | virtio-blk:trial mkfs:trial mount:trial" and client.source == "host"
    assert started(groups, found, ["client"]) == {"client"}
    client = written(SERVED.format(kind="vm", client="local"))["client", MAIN]
    assert names(client) == " | file:trial loop:trial mkfs:trial mount:trial"
    loop = client.layers[1].model_dump()
    assert loop["sector_size"] == 4096
    nodes = SERVED.format(kind="vm", client="vm").replace('"server"\n', '"server"\nkeep = "round"\n')
    kept = nodes.replace("[nodes.server]", '[nodes.server]\nkeep = "run"')
    assert names(written(kept)["client", MAIN]) == "file:run | virtio-blk:round mkfs:round mount:round"


def test_a_disk_that_is_made_in_a_guest_is_exported_to_the_hypervisor_of_another_unless_it_is_already() -> None:
    found = written(
        STORE
        + """
        [nodes.vm]
        kind  = "vm"
        count = 2
        from  = "store"
        stack = [{ layer = "zpool" }, { layer = "zvol", size = "1G" }, { layer = "nvme", cache = "writeback" }]
        """
    )
    chain = found["vm", MAIN]
    assert names(chain) == "zpool*:trial zvol:trial nbd-export:trial | nvme:trial"
    export = chain.below[-1]
    assert (export.layer.model_dump()["cache"], export.origin) == ("writeback", ("nodes", "vm", "stack", 2))
    served = '{ layer = "nbd-export", cache = "unsafe" }, { layer = "virtio-blk" }'
    found = written(f'{STORE}[nodes.vm]\nkind = "vm"\nfrom = "store"\nstack = [{served}]\n')
    assert names(found["vm", MAIN]) == "nbd-export:trial | virtio-blk:trial"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ('{ layer = "directory" }, { layer = "file", size = "1M" }', "directory* file"),
        ('{ layer = "file", size = "1M" }', "file"),
        ('{ layer = "file", size = "1M", once = true }, { layer = "loop" }', "file* loop"),
        ('{ layer = "file", size = "1M" }, { layer = "loop", once = true }', "file* loop*"),
        ('{ layer = "directory", once = false }, { layer = "file", size = "1M" }', "directory file"),
        (
            '{ layer = "zpool", size = "1G" }, { layer = "zfs", once = false }, { layer = "file", size = "1M" }',
            "zpool* zfs file",
        ),
    ],
)
def test_once_moves_the_border_of_what_all_nodes_share(stack: str, expected: str) -> None:
    found = written(f'[nodes.vm]\nkind = "vm"\ncount = 2\nstack = [{stack}, {{ layer = "virtio-blk" }}]\n')
    below = names(found["vm", MAIN]).partition(" |")[0]
    assert below.replace(":trial", "") == expected


_BLOCK = ["file", "loop", "mkfs", "mount", "zpool", "zvol", "nbd-export", "virtio-blk", "nbd"]
_SHARED = ["directory", "9p", "connect", "nfs-export", "nfs", "smb-share", "smb"]
_LINKS = st.sampled_from(_BLOCK + _SHARED)
_KEYS = {"file": {"size": "1G"}, "zvol": {"size": "1G"}, "mkfs": {"type": "ext4"}, "zpool": {"size": "1G"}}


@st.composite
def _layer(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(_LINKS)
    keep, once = draw(st.sampled_from([None, None, *KEEPS])), draw(st.sampled_from([None, None, None, True, False]))
    given_keys = {key: value for key, value in (("keep", keep), ("once", once)) if value is not None}
    return {"layer": name, **_KEYS.get(name, {}), **given_keys}


@st.composite
def _nodes(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    groups = {}
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    for name in names:
        kind = draw(st.sampled_from(["local", "netns", "vm", "vm"]))
        source = draw(st.sampled_from(["host", *names]))
        stack = draw(st.lists(_layer(), max_size=4))
        groups[name] = {"kind": kind, "keep": draw(st.sampled_from(KEEPS)), "from": source, "stack": stack}
    return groups


@settings(max_examples=500, deadline=None)
@given(_nodes())
def test_stacks_of_any_kind_resolve_soundly_or_are_refused_with_a_layer_named(nodes: dict[str, dict[str, Any]]) -> None:
    try:
        groups, found = chains(nodes)
    except ChainError as error:
        layers = {tree["layer"] for each in nodes.values() for tree in each["stack"]}
        circle = "continue" in str(error)
        assert error.origin[0] == "nodes"
        assert error.origin[1] in nodes
        named = [*(f"layer {layer}" for layer in layers), *(f"the nodes {name} are kept" for name in nodes)]
        assert circle or any(words in str(error) for words in named), str(error)
        return
    assert sorted(found) == [(name, MAIN) for name in sorted(nodes)]
    for (name, _), chain in found.items():
        _check_chain(chain, groups, found)
        mine = {link.origin for link in chain.links if link.origin[1] == name}
        assert mine == {("nodes", name, "stack", index) for index in range(len(nodes[name]["stack"]))}


def _check_chain(chain: Chain, groups: Mapping[str, NodeGroup], found: Chains) -> None:
    """Each link has one place, and none is kept longer than what it stands on."""
    assert chain.crossing is None or chain.crossing.transport in groups[chain.group].transports
    assert chain.crossing is not None or not chain.below
    crossings = [layer for layer in chain.layers if isinstance(layer, Crossing)]
    assert crossings == ([chain.crossing] if chain.crossing is not None else [])
    assert chain.crossing is None or not [link for link in chain.above if link.layer.once]
    shared = [link.once for link in chain.below]
    assert shared == sorted(shared, reverse=True), "what is shared is below what is not"
    below = found.get((chain.source, MAIN)) if chain.crossing is not None else None
    start = below.links[-1:] if below is not None else ()
    keeps = [KEEPS.index(link.keep) for link in (*start, *chain.links)]
    assert keeps == sorted(keeps, reverse=True)
    node = KEEPS.index(groups[chain.group].lasts)
    assert all(KEEPS.index(link.keep) <= node for link in chain.above)


GOLDEN = Path(__file__).parent / "golden"


def dump(name: str) -> str:
    cells: dict[str, list[str]] = {}
    for cell in load_study(shipped_studies()[name]).cells:
        cells.setdefault(of_cell(cell), []).append(" ".join(cell.levels.values()) or "-")
    return "\n".join(f"{', '.join(levels)}\n{text}" for text, levels in cells.items())


def of_cell(cell: Cell) -> str:
    return "".join(f"  {of_chain(cell, chain)}\n" for chain in cell.chains)


def of_chain(cell: Cell, chain: Chain) -> str:
    group = cell.nodes[chain.group]
    name = f"{chain.group}:{chain.name}" if chain.name else chain.group
    counts = f"{group.count} × {chain.count}" if chain.count > 1 else str(group.count)
    below, above = ", ".join(map(of_link, chain.below)), ", ".join(map(of_link, chain.above))
    return f"{name} ({group.kind}, {counts}) from {chain.source}: {f'{below} | ' if below else ''}{above}"


def of_link(link: Link) -> str:
    kept = f" [{link.keep}]" if link.keep != "trial" else ""
    return f"{link.layer.label()}{'*' if link.once else ''}{kept}"


@pytest.mark.parametrize("name", shipped_studies())
def test_layers_are_where_the_golden_file_has_them(name: str) -> None:
    file = GOLDEN / f"chains-{name}.txt"
    if os.environ.get("STORLAB_UPDATE_GOLDEN"):
        file.write_text(dump(name))
    assert dump(name) == file.read_text()
