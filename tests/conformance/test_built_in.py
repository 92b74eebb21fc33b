"""Every layer, workload, probe, node kind and importer of Storlab's own conforms; and the examples, by their tests."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from formats.fio.samples import golden as fio_golden
from importing import test_virtiofs_tests as virtiofs_sample
from importing.test_pgbench import LOG as PGBENCH_LOG
from importing.test_pgbench import SUMMARY as PGBENCH
from importing.test_table import TWO, WIDE
from locks import lines as lock_lines
from probes import (
    test_alignment,
    test_backing,
    test_counters,
    test_memory,
    test_nvme,
    test_processes,
    test_profile,
    test_server,
    test_share_requests,
    test_zfs,
)
from storlab.conformance import check_extension, check_set_up
from storlab.nodes.process import ExitRecord
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.locks.probe import LocksProbe
from storlab.probes.sampling import NAME as SAMPLES
from storlab.probes.subject import Subject
from storlab.probes.tcp.probe import TcpProbe
from storlab.registry import layer_types, node_kinds, probe_types, workload_types
from storlab.run.recovery.undoing import undo_table
from storlab.tools.importer import importer_of
from storlab.tools.kinds import importers, reader_names
from storlab.tools.readers.rules import built_in
from storlab.workloads.base import exit_bytes
from tcp import lines

TESTS = Path(__file__).parent.parent
EXAMPLES = TESTS.parent / "examples"

ENDED = exit_bytes(ExitRecord(("load",), 0, None, False, None, 0.0, 1.0, 2.0, 0.5, 0.25, 2**21, 0))

LAYERS: Mapping[str, Mapping[str, Any]] = {
    "bcache": {"cache": "c"},
    "device": {"path": "/dev/disk/by-id/x"},
    "dm": {"target": "delay", "reads": "1ms"},
    "file": {"size": "64M"},
    "image-clone": {"base": {"file": "/images/base.img"}},
    "image-copy": {"base": {"size": "64M"}},
    "md": {"level": "1", "disks": ["a", "b"]},
    "mkfs": {"type": "ext4"},
    "null-blk": {"size": "64M"},
    "pci": {"address": "0000:03:00.0"},
    "qcow2": {"size": "64M"},
    "scsi-debug": {"size": "64M"},
    "verity": {"data": "64M"},
    "zram": {"size": "64M"},
    "zvol": {"size": "64M"},
    "zvols": {"count": 2, "size": "64M"},
}
"""The keys that one of each must have."""
HELPED = {
    "file.remove": "fs.image_base", "mapper.remove": "block.mapper", "server.stop": "server.running",
    "settings.restore": "block.queue",
    "sockets.remove": "server.base", "watch.end": "server.running", "zfs.destroy": "database.data_set",
    "zfs.parameter": "zfs.module",
}  # fmt: skip
"""Undoes that one module registers for several layers."""


@pytest.mark.parametrize("name", layer_types())
def test_a_layer_conforms_and_its_undoes_are_in_the_one_table(name: str) -> None:
    cls = layer_types()[name]
    check_extension(cls, LAYERS.get(name, {}))
    assert all(undo_table()[undo.name] is undo for undo in cls.undoes)
    own = [each.__module__ for each in cls.__mro__ if each.__module__.startswith("storlab.")]
    here = re.findall(
        r'(?:register_undo\(\s*|\(\()"([\w.-]+)', "".join(inspect.getsource(sys.modules[each]) for each in own)
    )
    helps = {name: inspect.getsource(sys.modules[f"storlab.layers.{HELPED[name]}"]) for name in HELPED}
    elsewhere = [name for name in HELPED if re.search(rf'_undo\(\s*("{name}"|remove\w*\.name)', helps[name])]
    assert {undo.name for undo in cls.undoes} <= {*here, *elsewhere}, "else it would be left after a kill"


@pytest.mark.parametrize("keys", [{"layer": "directory"}, {"layer": "file", "size": "1M"}], ids=["directory", "file"])
def test_a_stack_that_takes_no_root_is_set_up_and_torn_down_twice(keys: dict[str, Any], tmp_path: Path) -> None:
    _set_up([keys], tmp_path)


@pytest.mark.needs("root")
def test_a_stack_of_loop_device_and_file_system_is_set_up_and_torn_down_twice(tmp_path: Path) -> None:
    stack = [{"layer": "file", "size": "32M"}, {"layer": "loop"}, {"layer": "mkfs", "type": "ext4"}, {"layer": "mount"}]
    (_, loop, _, mount) = _set_up(stack, tmp_path)
    assert loop["device"].startswith("/dev/loop") and mount


def _set_up(stack: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    layers = [layer_types()[keys["layer"]].model_validate(keys) for keys in stack]
    return asyncio.run(check_set_up(layers, folder))


COMMAND = {
    "argv": ["bench"],
    "metrics": [
        {"name": "rate", "regex": r"rate (\S+)", "unit": "B/s", "scale": 2**20, "better": "higher"},
        {"name": "p99", "json": "latency.p99", "from": "out.json", "unit": "s", "better": "lower", "across": "max"},
    ],
}
FILES = (TESTS / "workloads/golden/files.json").read_bytes()
BONNIE = (TESTS / "workloads/golden/bonnie.stdout").read_bytes()
SYSBENCH = (TESTS / "workloads/golden/sysbench-mariadb.txt").read_bytes()
POSIX = b"""{"check": "fsync", "outcome": "pass", "reason": ""}
{"check": "flock", "outcome": "unsupported", "reason": "flock: EOPNOTSUPP"}
"""
LOOKED = ENDED.replace(b'"load"', b'"python3", "-I", "posix.pyz", "/mnt", "15", "fsync", "flock"')
SECOND = {"runtime": 1, "threads": 2}
WORKLOADS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, bytes]]] = {
    "bonnie": ({"size": "160M", "files": 1}, {"stdout": BONNIE, "stderr": b"", "free": b"301592576 87020"}),
    "command": (COMMAND, {"stdout": b"rate 3\n", "out.json": b'{"latency": {"p99": 0.25}}'}),
    "files": ({"files": 1, "fsync": "directory"}, {"stdout": FILES, "stderr": b""}),
    "ledger": ({}, {"commits.json": b'{"elapsed": 1.5, "latencies": [0.5, 0.25, 0.125]}', "stderr": b""}),
    "pgbench": (
        {"threads": 2, "runtime": 1},
        {"stdout": PGBENCH.encode(), "stderr": b"", "transactions.71": PGBENCH_LOG},
    ),
    "sql-ledger": ({}, {"stdout": b"1\n2\n3\n", "stderr": b""}),
    "sysbench": ({"runtime": 5}, {"stdout": SYSBENCH, "stderr": b""}),
    "posix": ({"checks": ["fsync", "flock"]}, {"stdout": POSIX, "stderr": b"", "exit.json": LOOKED}),
    "fio": ({"rw": "randrw"}, {"fio.json": fio_golden("fio-plain.json"), "stderr": b""}),
}
"""Keys of each, and what its command leaves, which also is how it ended."""


def test_every_workload_probe_and_importer_has_an_example_here() -> None:
    assert WORKLOADS.keys() == workload_types().keys()
    assert PROBES.keys() == probe_types().keys()
    assert IMPORTERS.keys() == importers().keys()


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload(name: str, tmp_path: Path) -> None:
    keys, files = WORKLOADS[name]
    for file, text in {"exit.json": ENDED, **files}.items():
        (tmp_path / file).write_bytes(text)
    check_extension(workload_types()[name], keys, [tmp_path])


def _host_load(raw: Path) -> ProbeRecord:
    (raw / SAMPLES).write_bytes((TESTS / "probes/golden/host-load.jsonl").read_bytes())
    return ProbeRecord(raw, Window(3058.01741922, 3060.4604619220004), Subject(group="host", disks=("loop0",)))


def _stalls(raw: Path) -> ProbeRecord:
    test_backing.write_looks(raw, test_backing.looks([(0.5, 1, 1), (0.5, 0, 2), (0.5, 1, 0), (0.5, 0, 0), (0.5, 3, 1)]))
    return ProbeRecord(raw, Window(100.0, 200.0), test_backing.VDB)


def _processes(raw: Path) -> ProbeRecord:
    samples = [(9.5 + second, {"vm": test_processes.looks(71, 100 * second)}) for second in range(12)]
    return test_processes.write(raw, {"vm": 71}, samples)


def _alignment(raw: Path) -> ProbeRecord:
    test_alignment.saw(raw)
    return ProbeRecord(raw, test_alignment.WINDOW, test_alignment.VDA)


def _share_requests(raw: Path) -> ProbeRecord:
    after = [test_share_requests.SEND, test_share_requests.END, test_share_requests.OF_9P]
    return test_share_requests.record(raw, [[test_share_requests.NONE] * 3, [*after]], test_share_requests.VIRTIOFS)


def _tcp(raw: Path) -> ProbeRecord:
    disks = [["nbd0", [1, 2, 4096, 8192]]], [["nbd0", [5, 2, 4096, 8192]]]
    after = lines.connection(bytes_sent=9000, segs_out=40, segs_in=9, data_segs_out=8, snd_mss=1448, rtt=200, cwnd=10)
    rows = [lines.sample(99, lines.connection(), disks=disks[0]), lines.sample(201, after, disks=disks[1])]
    (raw / TcpProbe.output).write_bytes(b"".join(lines.printed(*rows)))
    return ProbeRecord(raw, Window(100.0, 200.0), Subject(group="client", disks=("nbd0",)))


def _locks(raw: Path) -> ProbeRecord:
    (raw / LocksProbe.output).write_bytes(
        lock_lines.printed(lock_lines.counts(lock_lines.waits("zio_dva_throttle", 3)))
    )
    return ProbeRecord(raw, Window(0.0, 1.0), Subject(group="client"))


PROBES: Mapping[str, Callable[[Path], ProbeRecord]] = {
    "alignment": _alignment,
    "counters": test_counters.record,
    "folios": test_memory.folios,
    "fragmentation": test_memory.fragmentation,
    "host-load": _host_load,
    "locks": _locks,
    "nvme": lambda raw: test_nvme.record(raw, nvme0n1=(test_nvme.log(), test_nvme.log(a216=1))),
    "processes": _processes,
    "profile": test_profile.record,
    "server": test_server.record,
    "share-requests": _share_requests,
    "stalls": _stalls,
    "tcp": _tcp,
    "zfs": test_zfs.record,
}


@pytest.mark.parametrize("kind", PROBES)
def test_a_probe(kind: str, tmp_path: Path) -> None:
    check_extension(probe_types()[kind], examples=[PROBES[kind](tmp_path)])


@pytest.mark.parametrize("name", node_kinds())
def test_a_node_kind(name: str) -> None:
    check_extension(node_kinds()[name], {"hosts": ["lab1"]} if name == "ssh" else None)


def _examples(*names: str) -> list[bytes]:
    return [(EXAMPLES / "imports" / name).read_bytes() for name in names]


def _golden(pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((TESTS / "importing/golden").glob(pattern))]


VIRTIOFS = virtiofs_sample.raw_file(
    "none",
    [
        virtiofs_sample.ran("randread-psync", virtiofs_sample.terse("a", read=(4096, 1024))),
        virtiofs_sample.refused("seqread-mmap"),
    ],
)
IMPORTERS: Mapping[str, tuple[list[bytes], Mapping[str, Any]]] = {
    **{
        name: (_golden(f"{name}[-_]*"), {}) for name in ("bonnie", "elbencho", "pcap", "pgbench", "sysbench", "vdbench")
    },
    "blkalgn": (_examples("blkalgn-4k.json", "blkalgn-64k.json"), {}),
    "csv": ([WIDE], TWO),
    "falcon": ([path.read_bytes() for path in sorted((TESTS / "importing/falcon").rglob("*-512.txt"))], {}),
    "fio": ([fio_golden("fio-mixed.json"), *_examples("fio.json")], {}),
    "text": ([b"did 5000 IOPS\n"], {"value": [r"iops=(\d+) IOPS"]}),
    "virtiofs-tests": ([VIRTIOFS.encode()], {}),
    **{name: ([sample.text.encode() for sample in built_in(name).samples], {}) for name in reader_names()},
    "zfs-perf": ([fio_golden("fio-mixed.json"), *_examples("fio.json")], {}),
}


@pytest.mark.parametrize("kind", IMPORTERS)
def test_an_importer(kind: str) -> None:
    files, options = IMPORTERS[kind]
    check_extension(type(importer_of(kind)), examples=files, options=options)


def test_the_examples_pass_the_tests_that_stand_beside_them() -> None:
    folder = EXAMPLES / "extensions"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), "-c", os.devnull]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    ended = subprocess.run([*argv, str(folder)], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
