"""The machines of a lab as a study sees them: hosts, groups of them, and the disk that each names for tests.

A study refers to them and names none itself, so it stays one that others can run: ``hosts = "@GROUP"``, and
``disk = "@lab"``. Which lab that is, says the command line; what it held is kept with the run, as files are that the
study names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from storlab.base import reach
from storlab.base.limits import NAME, NODES
from storlab.base.reach import OwnName
from storlab.base.units import shown
from storlab.layers.block.device import OF_LAB
from storlab.model import Model
from storlab.ssh.machine import DESTINATION
from storlab.study.messages import unknown
from storlab.workloads.base import ReadInput

LAB = OF_LAB
"""What a study calls the lab: as the input that its hosts are read from, and as the disk that each of them names."""
ALL = "all"
"""The group of all hosts, in any lab."""

_WORD = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{NAME - 1}}}")


class Misnamed(ValueError):
    """A group's name, or a host in one, can't be; ``path`` leads to it."""

    def __init__(self, message: str, path: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.path = path


def _as_word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError(f"{shown(value)} is not a valid name: at most {NAME} letters, digits, - _ and .")
    return value


def _as_destination(value: str) -> str:
    if not re.fullmatch(DESTINATION, value) or len(value) > NAME * 4:
        raise ValueError(f"{shown(value)} is no SSH destination: write host, of ~/.ssh/config, or user@host")
    return value


def _as_device(value: str) -> str:
    if not value.startswith("/dev/") or ".." in value.split("/"):
        raise ValueError(f"{shown(value)} must be the path of a device, such as /dev/disk/by-id/nvme-MODEL_SERIAL")
    return value


def _as_folder(value: str) -> str:
    if not value.startswith("/") or ".." in value.split("/"):
        raise ValueError(f"{shown(value)} must be an absolute path, such as /media/sparsefiles")
    return value.rstrip("/") or "/"


HostName = Annotated[OwnName, AfterValidator(_as_word)]
Destination = Annotated[reach.HostName, AfterValidator(_as_destination)]
Device = Annotated[reach.Device, AfterValidator(_as_device)]
Folder = Annotated[reach.WritesFile, AfterValidator(_as_folder)]


class Host(Model):
    """One machine. All keys may be left out: ``[hosts.lab1]`` alone is the host that ``ssh lab1`` reaches."""

    ssh: Destination | None = Field(
        None,
        description="What `ssh` is given: a host of `~/.ssh/config`, or user@host. By default the host's name.",
    )
    address: reach.Listens | None = Field(
        None,
        pattern=r"^[0-9A-Fa-f.:]{2,45}$",
        description="Its IP address in the network that tests use, where that is not what `ssh` goes over.",
    )
    disk: Device | None = Field(
        None, description="Its disk for tests, such as /dev/disk/by-id/nvme-MODEL_SERIAL. All data on it will be lost."
    )
    wipe: Device | None = Field(
        None, description="The same device again, to allow that existing data are destroyed. No study can allow that."
    )
    scratch: Folder | None = Field(
        None,
        description="Where Storlab puts files of its own there, such as the sparse files behind loop devices, in "
        "place of the study's `scratch`.",
    )

    @model_validator(mode="after")
    def _wiped_twice(self) -> Self:
        if self.wipe is not None and self.wipe != self.disk:
            named = "names no disk" if self.disk is None else f"says disk = {shown(self.disk)}"
            raise ValueError(f"wipe = {shown(self.wipe)}, but the host {named}: write the same path twice, or no wipe")
        return self


class Machines(Model):
    """The hosts of a lab, by name, and its groups. The group ``all`` is there by itself."""

    hosts: dict[HostName, Host] = Field({}, max_length=NODES, description="The hosts, by name.")
    groups: dict[HostName, list[HostName]] = Field(
        {}, max_length=NODES, description="Groups of hosts, by name. All hosts are the group `all`."
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        for group, names in self.groups.items():
            if group == ALL:
                raise Misnamed("all hosts are the group all already: call this one something else", ("groups", group))
            if group in self.hosts:
                raise Misnamed("a host has this name: give one of them another", ("groups", group))
            for index, name in enumerate(names):
                if name not in self.hosts:
                    raise Misnamed(unknown(f"host {shown(name)}", name, self.hosts), ("groups", group, index))
                if names.count(name) > 1:
                    raise Misnamed(f"the host {name} is in it twice", ("groups", group, index))
        return self

    def destination(self, name: str) -> str:
        return self.hosts[name].ssh or name

    def members(self) -> dict[str, list[str]]:
        """Each group with its hosts, in the order in which these are written; ``all`` first."""
        return {ALL: list(self.hosts), **self.groups}

    def named(self, word: str) -> list[str]:
        """The hosts that ``@WORD`` means: those of a group, or a host alone. Raises ``ValueError``."""
        word = word.removeprefix("@")
        members = self.members()
        if word in self.hosts:
            return [word]
        if word not in members:
            raise ValueError(unknown(f"group {shown(word)}", word, [*members, *self.hosts]))
        if not members[word]:
            raise ValueError(f"the group {shown(word)} has no hosts")
        return members[word]

    def destinations(self, word: str) -> list[str]:
        """What ``ssh`` is given for each of the hosts that ``@WORD`` means. Raises ``ValueError``."""
        return [self.destination(name) for name in self.named(word)]

    def of(self, destination: str) -> Host | None:
        """The host that ``ssh`` reaches so, by that or by its name; ``None`` if the lab has none."""
        return next((host for name, host in self.hosts.items() if destination in (host.ssh or name, name)), None)

    def disk_of(self, destination: str) -> tuple[str, str | None]:
        """The disk of a host, and, where existing data may be destroyed, that again. Raises ``ValueError``."""
        host = self.of(destination)
        if host is None:
            raise ValueError(unknown(f"host {shown(destination)}", destination, self.hosts))
        if host.disk is None:
            raise ValueError(f'the lab names no disk for {destination}: write disk = "/dev/disk/by-id/…" there')
        return host.disk, host.wipe

    def keys_of(self, destinations: Sequence[str]) -> dict[str, list[str]]:
        """What the lab says of hosts for the keys of their nodes; each of all of them, or of none.

        Raises ``ValueError`` where it is of some.
        """
        found = {}
        for key in ("address", "scratch"):
            said: dict[str, str | None] = {each: getattr(self.of(each), key, None) for each in destinations}
            lacking = [each for each, value in said.items() if value is None]
            if not lacking:
                found[key] = [value for value in said.values() if value is not None]
            elif len(lacking) < len(said):
                raise ValueError(
                    f"the lab names no {key} for {', '.join(lacking)}, and one for others: for all or none"
                )
        return found

    def several(self, words: Iterable[str]) -> list[str]:
        """The hosts that several words mean, each once. Raises ``ValueError``."""
        return list(dict.fromkeys(name for word in words for name in self.named(word)))


def hosts_of(group: Any) -> list[str]:
    return list(getattr(group, "hosts", ()))


def machines_text(machines: Machines) -> str:
    """As what a study reads, and a run keeps: without what was left out."""
    return machines.model_dump_json(exclude_defaults=True)


def read_machines(read: ReadInput) -> Machines:
    """The lab that a study refers to. Raises ``ValueError`` if the command line names none."""
    try:
        return Machines.model_validate_json(read(LAB))
    except ValidationError as error:
        raise ValueError(f"the hosts of the lab, as they were kept, are damaged: {error.errors()[0]['msg']}") from None
