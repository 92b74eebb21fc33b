"""What scripts must leave as they found it: pools, module parameters, mounts, users, devices, targets, swap, memory.

A script may change any of it while its group runs. What is still other than before once the group has been cleaned up
is a leak of the first script after which it was so (openzfs/zfs#13287).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from storlab.nodes import steps
from storlab.nodes.node import Node
from storlab.nodes.steps import Done, Step
from storlab.suite.model import Leak

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
    **{f"parameters of {module}": steps.contents(f"/sys/module/{module}/parameters") for module in _MODULES},
    **{f"configfs {folder}": steps.names(f"/sys/kernel/config/{folder}") for folder in _CONFIGFS},
}
# Disks appear when somebody loads a driver's module, attaches a file, or makes a volume or a mapping.
_DEVICE = re.compile(r"(loop|zd|dm-|md|sd[a-z]+|nbd|nullb|zram|ram)\d*")
_ESCAPE = re.compile(r"\\([0-7]{3})")
# What is held in tmpfs, and by the kernel for itself: beyond that much more than before it was not forgotten by chance.
_MEMORY = {"Shmem": ("files in memory", 16 * 1024**2), "SUnreclaim": ("kernel memory", 64 * 1024**2)}


@dataclass(frozen=True)
class State:
    """What can leak, as it is at one time: kind → name → value, which is empty where there is none."""

    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    killed: int = 0  # processes, for memory ran out

    def beyond(self, before: State) -> set[tuple[str, str]]:
        """Kind and words for what is other here than it was before."""
        found = set()
        for kind, items in self.known.items():
            earlier = before.known.get(kind, {})
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


def parse_state(done: Mapping[str, Done]) -> State:
    """A state by what was read, by the keys of ``_STEPS``; what could not be read is left out."""
    known: dict[str, Mapping[str, str]] = {}
    readers = {"pools": _pools, "mounts": _mounts, "users": _accounts, "groups": _accounts, "devices": _devices}
    for name, each in done.items():
        if each.ok and name in readers:
            known[_KINDS[name]] = readers[name](each)
        elif each.ok and name.startswith("parameters"):
            known["parameter"] = {**known.get("parameter", {}), **_parameters(each)}
        elif each.ok and name.startswith("configfs"):
            known["configfs"] = {**known.get("configfs", {}), **_made(name.partition(" ")[2], each)}
    known["swap"] = {line.split()[0]: "" for line in done["swaps"].text.splitlines()[1:] if line.split()}
    killed = re.search(r"^oom_kill (\d{1,9})$", done["events"].text, re.MULTILINE)
    return State(known, _memory(done["memory"].text), int(killed[1]) if killed else 0)


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


def _parameters(done: Done) -> dict[str, str]:
    return {name: value.strip() for name, value in done.targets.items()}


def _memory(text: str) -> dict[str, int]:
    fields = (line.partition(":") for line in text.splitlines())
    sizes = {name: value.split() for name, _, value in fields if name in _MEMORY}
    return {name: int(words[0]) * 1024 for name, words in sizes.items() if words and words[0].isdecimal()}


async def look(node: Node) -> State:
    """The state of a guest. Raises ``NodeError`` where it is lost."""
    done = await node.carry_out(*_STEPS.values(), go_on=True)
    return parse_state(dict(zip(_STEPS, done, strict=True)))


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
        """What is other than before the group."""
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
