"""What is checked of a study over its questions and all of its cells, and what its reader is told of that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from storlab.base.limits import CELLS, FACTORS
from storlab.base.units import shown
from storlab.layers.base import Crossing
from storlab.layers.database.base import DatabaseLayer
from storlab.metrics import MetricSpec
from storlab.study.cells import Cell
from storlab.study.chains import Link
from storlab.study.factors import Factor
from storlab.study.layout import over_network
from storlab.study.machines import LAB
from storlab.study.messages import no_level, unknown
from storlab.study.questions import check_claims, check_levels, check_objectives
from storlab.study.read_cells import Report
from storlab.study.schema import StudyFile
from storlab.study.toml_text import Path
from storlab.workloads.base import PLACE_WORDS


def check_questions(
    model: StudyFile,
    factors: Sequence[Factor],
    levels: Mapping[str, Sequence[str]],
    possible: Mapping[str, Sequence[str]],
    sweeps: Sequence[str],
    report: Report,
) -> None:
    """``possible``: levels with other parameters, too, which a comparison may be about."""
    _check_names(model, levels, possible, sweeps, report)
    for index, excluded in enumerate(model.exclude):
        check_levels(excluded, levels, possible, ("exclude", index), report)
    check_claims(model.claim, levels, possible, report)
    check_objectives(model.slo, levels, report)
    if model.profile is not None and model.profile not in model.profiles:
        report(("profile",), unknown(f"profile {model.profile!r}", model.profile, model.profiles))
    for profile, values in model.profiles.items():
        for name in values:
            if name not in model.parameters:
                report(("profiles", profile, name), unknown(f"parameter {name!r}", name, model.parameters))
    _limit_cells(factors, report)


def check_cells(model: StudyFile, cells: Sequence[Cell], report: Report) -> None:
    _check_metrics(cells, report)
    _check_disk(model, cells, report)
    _check_networks(cells, report)
    _check_cloning(cells, report)
    _check_devices(cells, report)
    _check_moments(cells, report)
    _check_alike(cells, report)


def notes_on(
    model: StudyFile, raw: Mapping[str, Any], factors: Sequence[Factor], cells: Sequence[Cell], used: set[str] | None
) -> tuple[str, ...]:
    """``used``: the factors and parameters that something refers to; ``None``: not all cells are here to tell."""
    unused = () if used is None else _unused(model, factors, cells, used)
    network = dict.fromkeys(note for cell in cells if cell.network is not None for note in cell.network.cautions())
    left_out = ((group, layer.layer, cell.groups[group].kind) for cell in cells for group, layer in _left_out(cell))
    native = (
        f"{group}: {layer} is left out, because these nodes are of kind {kind} and no virtual machines"
        for group, layer, kind in dict.fromkeys(left_out)
    )
    # Levels may be one and the same set-up on a disk whose sectors are what they are.
    sizes = list(dict.fromkeys(_of_loops(raw))) if model.disk is not None else []
    sectors = f"sector sizes of loop devices ({', '.join(sizes)}) are left out: {model.disk} has its own"
    return (*network, *native, *unused, *([sectors] if sizes else []))


def _check_names(
    model: StudyFile,
    levels: Mapping[str, Sequence[str]],
    possible: Mapping[str, Sequence[str]],
    sweeps: Sequence[str],
    report: Report,
) -> None:
    for name in levels:
        if name in model.parameters:
            report(("factors", name), f"{name} is a parameter already: give one of them another name")
    for table in ("factors", "parameters"):
        for name in getattr(model, table):
            if name in PLACE_WORDS:
                report((table, name), f"{{{name}}} is filled in when a trial runs: call this something else")
    for index, compare in enumerate(model.compare):
        path: Path = ("compare", index)
        if compare.factor is not None and compare.factor not in levels:
            report((*path, "factor"), unknown(f"factor {compare.factor!r}", compare.factor, levels))
        elif levels:
            names = [name for name in levels if name not in (compare.at or {})] or [*levels]
            factor = compare.factor or next((name for name in names if name not in sweeps), names[0])
            _check_pairs(
                compare.pairs or (), factor, levels[factor], possible.get(factor, ()), (*path, "pairs"), report
            )
        elif compare.pairs:
            report((*path, "pairs"), "without factors there is nothing to compare")
        check_levels(compare.at or {}, levels, possible, (*path, "at"), report)
        if compare.factor is not None and compare.factor in (compare.at or {}):
            report((*path, "at", compare.factor), "this factor is compared: pairs say which of its levels")
        if not compare.within and not compare.pooled:
            report(path, "with within = false and pooled = false it compares nothing: leave one of them out")


def _check_pairs(
    pairs: Sequence[tuple[str, str]],
    factor: str,
    levels: Sequence[str],
    possible: Sequence[str],
    path: Path,
    report: Report,
) -> None:
    """``possible``: levels with other parameters, too, which a comparison may be about."""
    seen: set[frozenset[str]] = set()
    for number, pair in enumerate(pairs):
        for place, level in enumerate(pair):
            if level not in levels and level not in possible:
                report((*path, number, place), no_level(factor, level, levels))
        if pair[0] == pair[1]:
            report((*path, number), f"{pair[0]!r} is compared with itself")
        elif frozenset(pair) in seen:
            report((*path, number), f"{pair[0]!r} and {pair[1]!r} are compared already")
        seen.add(frozenset(pair))


def _check_disk(model: StudyFile, cells: Sequence[Cell], report: Report) -> None:
    if model.disk is None:
        if model.wipe is not None:
            report(("wipe",), f'wipe names the study\'s disk once more: write disk = "{model.wipe}" as well')
        return
    layers = (layer for cell in cells for each in cell.declared for layer in each.layers)
    if model.disk == LAB and model.wipe is not None:
        report(("wipe",), "whether a host's disk may be wiped is said by the lab: write wipe beside its disk there")
    elif model.disk == LAB and not any(layer.claims() == LAB for layer in layers):
        remedy = 'write kind = "ssh" and hosts = "@GROUP" in [nodes.NAME], or run it there: storlab run STUDY --on HOST'
        report(("disk",), f"no stack of this study begins with a disk of a host of the lab: {remedy}")
    elif model.disk != LAB and not any(layer.claims() == model.disk for layer in layers):
        report(
            ("disk",),
            f"no stack of this study begins with a disk of this machine, in whose place {model.disk} could be: put a "
            'file system on it and name its directory in layer "directory" (--set stack.0.path=DIRECTORY), or write '
            f'stack = [{{ layer = "device", path = "{model.disk}" }}, …]',
        )


def _of_loops(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict) and tree.get("layer") == "loop" and "sector_size" in tree:
        yield str(tree["sector_size"])
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _of_loops(part)


def _check_metrics(cells: Sequence[Cell], report: Report) -> None:
    """A metric means one thing in all cells: else seconds would be compared with rates."""
    known: dict[tuple[str, str], MetricSpec] = {}
    for load in (load for cell in cells for load in cell.loads):
        for spec in load.workload.declares():
            first = known.setdefault((load.name, spec.name), spec)
            for key in ("unit", "better") if first is not spec else ():
                one, other = getattr(first, key), getattr(spec, key)
                if one != other:
                    message = f"{spec.name} has {key} = {shown(one)} in one cell and {shown(other)} in another"
                    report(("workload", load.name), f"{message}: levels cannot be compared by it")


def _limit_cells(factors: Sequence[Factor], report: Report) -> None:
    if len(factors) > FACTORS:
        report(("factors",), f"there are {len(factors)} factors, more than {FACTORS}: leave out some, or ask in parts")
    count = math.prod(len(factor.levels) for factor in factors)
    if count > CELLS:
        cells = f"{count} cells" if count < 10**15 else "a vast number of cells"
        report(("factors",), f"these factors make {cells}, more than {CELLS}: leave out levels, or use --only")


def _unused(model: StudyFile, factors: Sequence[Factor], cells: Sequence[Cell], used: set[str]) -> list[str]:
    """What is in none of the ``cells``, which are all of the study's."""
    run = {load.name for cell in cells for load in cell.loads}
    chosen = "{" in str(model.trial.get("workloads"))  # by levels, of which a run may have some
    return [
        *(
            f"the factor {factor.name} is used nowhere: its levels are one and the same set-up (an A/A comparison)"
            for factor in factors
            if factor.name not in used
        ),
        *(f"the parameter {name} is used nowhere" for name in model.parameters if name not in used),
        *(f"the workload {name} is run in no cell" for name in model.workload if name not in run and not chosen),
    ]


def _check_cloning(cells: Sequence[Cell], report: Report) -> None:
    """Report levels that differ in the way of cloning, unless that is all that they differ in."""
    for factor in cells[0].levels if cells else ():
        beside: dict[tuple[str, ...], list[Cell]] = {}
        for cell in cells:
            others = tuple(level for name, level in cell.levels.items() if name != factor)
            beside.setdefault(others, []).append(cell)
        for neighbours in beside.values():
            _check_ways(factor, neighbours, report)


def _check_ways(factor: str, cells: Sequence[Cell], report: Report) -> None:
    """Of cells that differ in one factor."""
    links = [(link, link.layer) for cell in cells for link in _links(cell)]
    ways = {layer.clone: link for link, layer in links if isinstance(layer, DatabaseLayer)}
    if len(ways) < 2 or len({_without_cloning(cell) for cell in cells}) == 1:
        return
    *_, last = listed = sorted(ways)
    message = (
        f"levels of {factor} get their data by clone = {' and '.join(map(shown, listed))}, and differ in more than "
        "that: write the same for all of them, or let clone alone be a factor"
    )
    report((*ways[last].origin, "clone"), message)


def _links(cell: Cell) -> list[Link]:
    return [link for chain in cell.chains for link in chain.links]


def _without_cloning(cell: Cell) -> tuple[str, ...]:
    """All else that is measured in this cell."""
    layers = [(link.layer, {"clone"} if isinstance(link.layer, DatabaseLayer) else None) for link in _links(cell)]
    stacks = [f"{layer.layer} {layer.model_dump_json(exclude=apart)}" for layer, apart in layers]
    return (*stacks, *(f"{load.name} {load.workload.model_dump_json()} {load.limits}" for load in cell.loads))


def _check_devices(cells: Sequence[Cell], report: Report) -> None:
    """Report groups whose nodes get more devices than their kind takes."""
    for cell in cells:
        for name, group in cell.nodes.items():
            crossings = [(chain.crossing, chain.count) for chain in cell.chains if chain.group == name]
            disks = sum(count for each, count in crossings if each is not None and each.transport == "hypervisor")
            count, most = disks + cell.networked(name), group.most_devices
            if most is not None and count > most:
                card = " and its network card" if cell.networked(name) else ""
                report(
                    ("nodes", name),
                    f"{disks} disks and shares{card} are more than the {most} devices that a virtual machine takes: "
                    "write a smaller count",
                )


def _check_networks(cells: Sequence[Cell], report: Report) -> None:
    asked = [cell for cell in cells if cell.network is not None]
    _check_uplink(cells, report)
    _check_interfaces(cells, report)
    if asked and not any(cell.networked(group) for cell in asked for group in cell.nodes):
        remedy = 'a crossing such as nbd puts them on one, with kind = "vm" or "netns" and from = "…"'
        report(("network",), f"no node of this study is on a network: {remedy}; or leave [network] out")
    for group in dict.fromkeys(name for cell in cells for name, each in cell.nodes.items() if each.tcp is not None):
        if not any(group in cell.nodes and cell.networked(group) for cell in cells):
            wrong = f"the nodes {group} are on no network among nodes, and their TCP is this machine's"
            groups = [cell.groups[group] for cell in cells]
            if all("network" in each.transports and each.network_of == "run" for each in groups):
                wrong = f"the nodes {group} are on no network: nothing is served to them, or by them, over one"
            report(("nodes", group, "tcp"), f"{wrong}: leave tcp out")
    _check_kept(cells, report)
    _check_settings(cells, report)
    _check_side_by_side(cells, report)


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


def _check_moments(cells: Sequence[Cell], report: Report) -> None:
    """What is to happen while loads run comes before their end, and not between slices of several."""
    for cell in cells:
        durations = [load.workload.duration(cell.trial.warm_up) for load in cell.loads]
        longest = math.inf if None in durations else max((each for each in durations if each is not None), default=0.0)
        for link in (link for chain in cell.chains for link in chain.links if link.layer.moments()):
            last = max(link.layer.moments())
            if cell.trial.side_by_side:
                report(link.origin, "something happens to it while loads run: leave out [trial] slices and parallel")
            elif last >= longest:
                wrong = f"something is to happen to it {last:g} s into a load that takes {longest:g} s"
                report(link.origin, f"{wrong}: let it happen earlier, or the load run longer")


def _check_side_by_side(cells: Sequence[Cell], report: Report) -> None:
    """Cells that are set up together can't have one node's card in two shapes."""
    for group in dict.fromkeys(name for cell in cells for name in cell.nodes):
        mine = [cell for cell in cells if cell.trial.side_by_side and group in cell.nodes and cell.shaped(group)]
        if len({_shape(cell, group) for cell in mine if cell.nodes[group].lasts != "trial"}) > 1:
            wrong = f"the nodes {group} have one card each, whose network differs between cells that run together"
            report(("nodes", group), f'{wrong}: write kind = "vm" and keep = "trial", or no slices and parallel')


def _check_settings(cells: Sequence[Cell], report: Report) -> None:
    """A kernel has one value of each setting at a time."""
    for cell in cells:
        first: dict[str, tuple[str, int | str]] = {}
        for name, group in cell.nodes.items():
            for setting, value in group.settings.items() if group.here else ():
                other, known = first.setdefault(setting, (name, value))
                if known != value:
                    wrong = f"{setting} is {known} in [nodes.{other}], whose kernel these nodes have, too"
                    report(("nodes", name, "settings"), f"{wrong}: write one value")
    for name in dict.fromkeys(name for cell in cells for name in cell.nodes):
        mine = [cell.nodes[name] for cell in cells if cell.trial.side_by_side and name in cell.nodes]
        if any(group.settings != mine[0].settings for group in mine if group.lasts != "trial"):
            wrong = f"the kernel of the nodes {name} has one value of a setting at a time, and cells run together"
            report(("nodes", name, "settings"), f"{wrong}: leave out [trial] slices and parallel")


def _shape(cell: Cell, *groups: str) -> str:
    known = (cell.groups[group] for group in groups if group in cell.groups)
    network = "" if cell.network is None else cell.network.model_dump_json(exclude_none=True)
    return network + "".join(each.tcp.model_dump_json(exclude_none=True) if each.tcp else "-" for each in known)


def _left_out(cell: Cell) -> Iterator[tuple[str, Crossing]]:
    for each in cell.declared:
        group = cell.groups[each.group]
        for layer in each.layers if group.placement == "native" else ():
            if isinstance(layer, Crossing) and layer.transport not in group.transports:
                yield each.group, layer


def _check_alike(cells: Sequence[Cell], report: Report) -> None:
    """Report cells that differ in nothing but layers that are left out: their levels would be one set-up."""
    known: dict[str, Cell] = {}
    for cell in cells:
        for group, layer in _left_out(cell):
            chains = [(chain.group, chain.name, chain.source, chain.layers, chain.count) for chain in cell.chains]
            nodes = [(name, each.spec(), each.count, each.tcp, each.settings) for name, each in cell.nodes.items()]
            rest = (cell.loads, cell.probes, cell.trial, cell.precondition, cell.network, cell.verified, cell.crash)
            first = known.setdefault(repr((chains, nodes, rest)), cell)
            if first is not cell and [each.layers for each in first.declared] != [
                each.layers for each in cell.declared
            ]:
                levels = " ".join(
                    f"{name}={level}" for name, level in cell.levels.items() if first.levels[name] != level
                )
                report(
                    ("nodes", group),
                    f"without layer {layer.layer}, which virtual machines alone have, {levels} is the same set-up as "
                    "another level: choose levels with --only, or leave the kind of these nodes as it is",
                )
                return
