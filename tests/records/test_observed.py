"""How probes watched: once for all that were alike."""

from __future__ import annotations

from storlab.records.tables import Observed, probe_facts


def test_alike_watches_are_one_entry_with_all_their_places_and_disks() -> None:
    watched = [
        Observed(cell, node, "alignment", {"disks": [disk], "hook": "tp_btf"})
        for cell, node, disk in ((2, "vm-1", "vda"), (1, "vm-1", "vdb"), (1, "vm-2", "vda"))
    ]
    assert probe_facts(watched) == [
        {"probe": "alignment", "nodes": ["vm-1", "vm-2"], "cells": [1, 2], "disks": ["vda", "vdb"], "hook": "tp_btf"}
    ]


def test_a_node_that_had_to_watch_otherwise_is_an_entry_of_its_own() -> None:
    watched = [
        Observed(1, "a", "alignment", {"disks": [], "hook": "tp_btf"}),
        Observed(1, "b", "alignment", {"disks": [], "hook": "classic tracepoint"}),
    ]
    assert [(entry["nodes"], entry["hook"]) for entry in probe_facts(watched)] == [
        (["a"], "tp_btf"),
        (["b"], "classic tracepoint"),
    ]
