"""The relay: one server with and without what others do to their replies."""

from __future__ import annotations

from laboratory import Laboratory
from laboratory.guests import needs_guests
from storlab.layers.resources import Disk, Export, Server
from storlab.layers.stack import type_errors

from .sites import parse

FILE = {"layer": "file", "size": "16M"}

READS = """
before=$(nstat -asz TcpExtDelayedACKs | awk '/Delayed/ {print $2}')
dd if=$target of=/dev/null bs=8k count=50 iflag=direct 2>/dev/null
after=$(nstat -asz TcpExtDelayedACKs | awk '/Delayed/ {print $2}')
echo "delayed $((after - before))"
"""
NAGLE = """
primary = "delayed"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false } }
[probes]
[factors]
nagle = [false, true]
[network]
mtu = 9000
[nodes.server]
kind = "vm"
keep = "run"
memory = "256M"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.client]
kind = "vm"
memory = "256M"
from = "server"
stack = [{ layer = "nbd-export" }, { layer = "relay", whole = true, head = 16, nagle = "{nagle}" }, { layer = "nbd" }]
[workload.reads.command]
argv = ["sh", "-c", '''target={target}; READS''']
metrics = [{ name = "delayed", regex = 'delayed ([0-9]+)', unit = "1", better = "lower" }]
""".replace("READS", READS)


def test_it_gives_what_it_takes_and_serves_it_elsewhere() -> None:
    relay, connect = {"layer": "relay"}, {"layer": "connect"}
    assert type_errors(parse([FILE, {"layer": "nbd-export"}, relay, {"layer": "nbd"}]), (Disk,)) == []
    assert type_errors(parse([FILE, {"layer": "nbd-export"}, relay, connect]), (Export,)) == []
    assert type_errors(parse([FILE, relay]), (Server,))[0][1].startswith("layer relay takes a Server or Export")


def said(lab: Laboratory, trial: int) -> int:
    (path,) = (lab.out / "trials" / f"{trial:04}").rglob("reads/stdout")
    return int(path.read_text().removeprefix("delayed "))


@needs_guests
def test_nagles_algorithm_on_the_server_waits_for_acks_that_the_client_delays(lab: Laboratory) -> None:
    """In 50 reads of 8 KiB over jumbo frames: data and header are less than a segment each."""
    lab.execute(NAGLE)
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)] * 2
    delayed = {record.levels["nagle"]: said(lab, record.trial) for record in lab.records()}
    assert delayed["true"] >= 25, delayed
    assert delayed["false"] <= 3, delayed
    assert lab.leftovers() == []
