"""What a study asks of its network, over all of its cells: whether there is one, and whether it can change with a cell.

What is set up over a network is set up again where another cell shapes it otherwise: connections keep what they began
with, such as the size of their segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storlab.study.cells import Cell
from storlab.study.chains import Link
from storlab.study.layout import over_network
from storlab.study.read_cells import Report
from storlab.study.toml_text import Path


def check_networks(cells: Sequence[Cell], report: Report) -> None:
    """Report a network that no node is on, and one that would change under what is kept."""
    asked = [cell for cell in cells if cell.network is not None]
    _check_uplink(cells, report)
    _check_interfaces(cells, report)
    if asked and not any(cell.networked(group) for cell in asked for group in cell.nodes):
        remedy = 'a crossing such as nbd puts them on one, with kind = "vm" or "netns" and from = "…"'
        report(("network",), f"no node of this study is on a network: {remedy}; or leave [network] out")
    for group in dict.fromkeys(name for cell in cells for name, each in cell.nodes.items() if each.tcp is not None):
        if not any(group in cell.nodes and cell.networked(group) for cell in cells):
            wrong = f"the nodes {group} are on no network among nodes, and their TCP is this machine's"
            if all(_own(cell, group) for cell in cells):
                wrong = f"the nodes {group} are on no network: nothing is served to them, or by them, over one"
            report(("nodes", group, "tcp"), f"{wrong}: leave tcp out")
    _check_kept(cells, report)
    _check_side_by_side(cells, report)


def _own(cell: Cell, group: str) -> bool:
    each = cell.groups[group]
    return "network" in each.transports and each.network_of == "run"


def _check_uplink(cells: Sequence[Cell], report: Report) -> None:
    """A way out of the run's network is there only if the study says so, and only if it is used."""
    asked = [cell for cell in cells if cell.network is not None and cell.network.uplink]
    used = False
    for cell in cells:
        for chain in filter(cell.by_uplink, cell.chains):
            used = True
            if cell not in asked:
                wrong = f"the nodes {chain.group} are on the run's own network, and the nodes {chain.source} are not"
                report(("nodes", chain.group), f"{wrong}: give that network a way out, uplink = true in [network]")
    if asked and not used:
        wrong = "nothing on the run's own network is served from outside of it"
        report(("network", "uplink"), f"{wrong}: leave uplink out")


def _check_interfaces(cells: Sequence[Cell], report: Report) -> None:
    """Of a machine's own network nothing is changed but what the study names."""
    for cell in cells:
        for name in filter(cell.shaped, cell.nodes):
            group = cell.nodes[name]
            if group.shaped is None:
                what = "TCP's settings" if group.tcp is not None else "the network cards"
                path: Path = ("nodes", name, "tcp") if group.tcp is not None else ("network",)
                report(
                    path,
                    f"{what} of the nodes {name} are those of a machine that others use, too: write interface = … in "
                    f"[nodes.{name}], the network interface that the study may change there and give back, or leave "
                    "this out",
                )


def _check_kept(cells: Sequence[Cell], report: Report) -> None:
    """Of each chain, the lowest such layer: those above it follow from that."""
    shapes: dict[Path, set[str]] = {}
    kept: dict[Path, dict[Path, Link]] = {}  # chain → its layers over a network that are kept, the lowest first
    for cell in cells:
        for chain in (chain for chain in cell.chains if chain.crossing is not None):
            for link in (link for link in over_network(chain) if link.keep != "trial"):
                shapes.setdefault(link.origin, set()).add(_shape(cell, chain.group, chain.source))
                kept.setdefault(chain.path, {})[link.origin] = link
    for links in kept.values():
        changing = [link for origin, link in links.items() if len(shapes[origin]) > 1]
        if changing:
            lowest = changing[0]
            wrong = f"layer {lowest.layer.layer} is kept for {'a round' if lowest.keep == 'round' else 'the run'}"
            reason = "but the network that it works over differs from cell to cell"
            report(lowest.origin, f'{wrong}, {reason}: write keep = "trial"')


def _check_side_by_side(cells: Sequence[Cell], report: Report) -> None:
    """Cells that are set up together can't have one node's card in two shapes."""
    for group in dict.fromkeys(name for cell in cells for name in cell.nodes):
        mine = [cell for cell in cells if cell.trial.side_by_side and group in cell.nodes and cell.shaped(group)]
        if len({_shape(cell, group) for cell in mine if cell.nodes[group].lasts != "trial"}) > 1:
            wrong = f"the nodes {group} have one card each, whose network differs between cells that run together"
            report(("nodes", group), f'{wrong}: write kind = "vm" and keep = "trial", or no slices and parallel')


def _shape(cell: Cell, *groups: str) -> str:
    known = (cell.groups[group] for group in groups if group in cell.groups)
    network = "" if cell.network is None else cell.network.model_dump_json(exclude_none=True)
    return network + "".join(each.tcp.model_dump_json(exclude_none=True) if each.tcp else "-" for each in known)


def network_notes(cells: Sequence[Cell]) -> Iterator[str]:
    """What a reader must know of what was asked for, each once."""
    yield from dict.fromkeys(note for cell in cells if cell.network is not None for note in cell.network.cautions())
