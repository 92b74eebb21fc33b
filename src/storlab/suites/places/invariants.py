"""What scripts must leave as they found it: pools, module parameters, mounts, users, devices, targets, swap, memory.

A script may change any of it while its group runs. What is still other than before once the group has been cleaned up
is a leak of the first script after which it was so (openzfs/zfs#13287).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from storlab.base.errors import NodeError
from storlab.base.text import is_whole
from storlab.nodes.agent import steps
from storlab.nodes.agent.steps import Done, Step
from storlab.nodes.node import Node
from storlab.suites.model import Leak

_MODULES = ("spl", "zfs")
_CONFIGFS = ("nullb", "nvmet/subsystems", "nvmet/ports", "target/core", "target/iscsi", "target/loopback")
"""Where tests make devices and targets."""
_STEPS: Mapping[str, Step] = {
    "pools": steps.names("/proc/spl/kstat/zfs"),
    "mounts": steps.read("/proc/self/mountinfo"),
    "users": steps.read("/etc/passwd"),
    "groups": steps.read("/etc/group"),
    "devices": steps.read("/proc/partitions"),
    "swaps": steps.read("/proc/swaps"),
    "memory": steps.read("/proc/meminfo"),
    "events": steps.read("/proc/vmstat"),
    **{f"configfs {folder}": steps.names(f"/sys/kernel/config/{folder}") for folder in _CONFIGFS},
}
# Disks appear when somebody loads a driver's module, attaches a file, or makes a volume or a mapping.
_DEVICE = re.compile(r"(loop|zd|dm-|md|sd[a-z]+|nbd|nullb|zram|ram)\d*")
_ESCAPE = re.compile(r"\\([0-7]{3})")
# What is held in tmpfs, and by the kernel for itself: beyond that much more than before it was not forgotten by chance.
_MEMORY = {"Shmem": ("files in memory", 16 * 1024**2), "SUnreclaim": ("kernel memory", 64 * 1024**2)}


@dataclass(frozen=True)
class State:
    """What can leak, as it is at one time: kind → name → value, which is empty if there is none."""

    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of each module
    memory: Mapping[str, int] = field(default_factory=dict)
    killed: int = 0  # processes, for memory ran out

    def beyond(self, before: State) -> set[tuple[str, str]]:
        """Kind and words for what is other here than it was before."""
        found = set()
        kinds = [(kind, items, before.known.get(kind, {})) for kind, items in self.known.items()]
        kinds += [
            ("parameter", items, before.parameters[module])
            for module, items in self.parameters.items()
            if module in before.parameters  # all of one that was not loaded would be new
        ]
        for kind, items, earlier in kinds:
            for name, value in items.items():
                if name not in earlier:
                    found.add((kind, f"{name} = {value}" if value else name))
                elif earlier[name] != value:
                    found.add((kind, f"{name} = {value}, was {earlier[name]}"))
            found |= {(kind, f"{name} is gone") for name in earlier if name not in items}
        return found

    def grown(self, before: State) -> dict[str, int]:
        """Of memory, what became more by so much that it counts, in bytes."""
        grown = {kind: size - before.memory.get(kind, size) for kind, size in self.memory.items()}
        return {kind: more for kind, more in grown.items() if more > _MEMORY[kind][1]}


def parse_state(done: Mapping[str, Done], before: State) -> State:
    """A state by what was read, by the keys of ``_STEPS`` and names of modules; what could not be read is left out.

    Parameters that were not read again, for nobody has written to one, are those of ``before``.
    """
    known: dict[str, Mapping[str, str]] = {}
    parameters = {module: before.parameters.get(module, {}) for module in _MODULES if done[module].ok}
    for module in parameters:
        if done[module].there:
            parameters[module] = {name: value.strip() for name, value in done[module].targets.items()}
    readers = {"pools": _pools, "mounts": _mounts, "users": _accounts, "groups": _accounts, "devices": _devices}
    for name, each in done.items():
        if each.ok and name in readers:
            known[_KINDS[name]] = readers[name](each)
        elif each.ok and name.startswith("configfs"):
            known["configfs"] = {**known.get("configfs", {}), **_made(name.partition(" ")[2], each)}
    known["swap"] = {line.split()[0]: "" for line in done["swaps"].text.splitlines()[1:] if line.split()}
    killed = re.search(r"^oom_kill (\d{1,9})$", done["events"].text, re.MULTILINE)
    return State(known, parameters, _memory(done["memory"].text), int(killed[1]) if killed else 0)


_KINDS = {"pools": "pool", "mounts": "mount", "users": "user", "groups": "group", "devices": "device"}


def _pools(done: Done) -> dict[str, str]:
    """Pools have a folder beside the module's own statistics, which are there before any pool is."""
    return dict.fromkeys(done.entries, "")


def _made(folder: str, done: Done) -> dict[str, str]:
    """What was made in a folder of configfs; beside it lies what its module says of itself."""
    return {f"{folder}/{name}": "" for name in done.entries if name not in ("features", "discovery_auth", "alua")}


def _mounts(done: Done) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in done.text.splitlines():
        words = line.split(" ")
        if len(words) > 5:
            point = _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), words[4])
            options = ",".join(each for each in words[5].split(",") if each in ("ro", "rw"))
            name = point if point not in found else f"{point}, mounted over"
            found[name] = options
    return found


def _accounts(done: Done) -> dict[str, str]:
    return {line.partition(":")[0]: "" for line in done.text.splitlines() if ":" in line}


def _devices(done: Done) -> dict[str, str]:
    names = [line.split()[-1] for line in done.text.splitlines() if line.split()]
    return {name: "" for name in names if _DEVICE.fullmatch(name)}


def _memory(text: str) -> dict[str, int]:
    fields = (line.partition(":") for line in text.splitlines())
    sizes = {name: value.split() for name, _, value in fields if name in _MEMORY}
    return {name: int(words[0]) * 1024 for name, words in sizes.items() if words and is_whole(words[0])}


async def look(node: Node, before: State | None = None) -> State:
    """The state of a guest. Raises ``NodeError`` if it is lost.

    ``before``: an earlier one. ZFS has 350 parameters, so they are read again only once somebody has written to one:
    reading them takes an emulated guest 11 ms, a third of a short test. What a module changes by itself is no leak.
    """
    modules = {
        module: steps.contents(f"/sys/module/{module}/parameters", changed=before is not None) for module in _MODULES
    }
    wanted = {**_STEPS, **modules}
    done = await node.carry_out(*wanted.values(), go_on=True)
    try:
        return parse_state(dict(zip(wanted, done, strict=True)), before or State())
    except (ValueError, LookupError) as error:  # a guest's root may mount whatever it likes over what is read
        raise NodeError(f"node {node.name}: what it says of itself makes no sense: {str(error)[:200]}") from error


class Watchman:
    """Follows a group's scripts: what each was the first to change, and what of that is left in the end."""

    def __init__(self, before: State) -> None:
        self._before = self._last = before
        self._first: dict[tuple[str, str], str] = {}
        self._grown: dict[str, str] = {}

    def saw(self, state: State, path: str) -> int:
        """``path``: the script that has just ended; how many processes were killed since the last look."""
        killed, self._last = state.killed - self._last.killed, state
        now = state.beyond(self._before)
        self._first = {what: self._first.get(what, path) for what in now}
        self._grown = {kind: self._grown.get(kind, path) for kind in state.grown(self._before)}
        return killed

    @property
    def leaks(self) -> list[Leak]:
        memory = self._last.grown(self._before)
        found = [Leak(kind, what, path) for (kind, what), path in self._first.items()]
        found += [
            Leak("memory", f"{memory[kind] >> 20} MiB more of {_MEMORY[kind][0]}", path)
            for kind, path in self._grown.items()
        ]
        return sorted(found, key=lambda leak: (leak.by, leak.kind, leak.what))

    @property
    def last(self) -> State:
        """How the group left it: what the next one begins with."""
        return self._last
