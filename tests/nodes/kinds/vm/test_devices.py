"""Devices, for the command line and for the monitor."""

from __future__ import annotations

import orjson
import pytest

from storlab.nodes.demands import NO_DEVICES, Devices
from storlab.nodes.network import Card

CARD = Card(3, "tap3")
SCSI = Devices(
    devices=(
        {"driver": "virtio-scsi-pci", "id": "bus0"},
        {"driver": "scsi-hd", "drive": "disk0", "bus": "bus0.0"},
    )
)
NVME = Devices(devices=({"driver": "nvme", "drive": "disk0", "serial": "s"},))
ALL = Devices(objects=({"id": "o"},), blockdevs=({"node-name": "b"},)) + SCSI + CARD.devices()


def test_what_sits_in_a_slot_gets_a_port_and_what_sits_on_it_does_not() -> None:
    assert (SCSI.pci, NVME.pci, CARD.devices().pci, ALL.pci, NO_DEVICES.pci) == (1, 1, 1, 2, 0)
    buses = [device.get("bus") for device in ALL.on_ports(["port0", "port1"]).devices]
    assert buses == ["port0", "bus0.0", "port1"]


def test_too_few_ports_are_a_mistake() -> None:
    with pytest.raises((StopIteration, RuntimeError)):
        ALL.on_ports(["port0"])


def test_objects_come_first_then_what_is_behind_then_what_the_guest_sees() -> None:
    assert [name for name, _ in ALL.commands()] == ["object-add", "blockdev-add", *["device_add"] * 3]
    words = ALL.command_line()
    assert words[::2] == ["-netdev", "-object", "-blockdev", *["-device"] * 3]
    assert [orjson.loads(word) for word in words[3::2]] == [arguments for _, arguments in ALL.commands()]
    assert ALL.early_arguments() == words[:2]


def test_a_card_is_connected_to_its_tap_and_runs_no_script() -> None:
    netdev = orjson.loads(CARD.devices().early_arguments()[1])
    ((_, device),) = CARD.devices().commands()
    assert (netdev["type"], netdev["ifname"], netdev["script"], netdev["downscript"]) == ("tap", "tap3", "no", "no")
    assert (device["netdev"], device["mac"]) == (netdev["id"], CARD.mac)
