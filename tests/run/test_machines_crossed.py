"""Chains that cross the network of machines: over SSH, this one, and from the run's own network by a way out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, kill, wait_until
from laboratory.hosts import Hosts, hosts

from .test_networks import HEAD

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.needs("root", "ssh", "sshd", "unshare", "ip")

LAB1, LAB2 = 'kind = "ssh", hosts = ["lab1"]', 'kind = "ssh", hosts = ["lab2"]'
HERE = 'kind = "local", address = "NET.254"'
READ = '["qemu-img", "bench", "-f", "raw", "-c", "64", "-t", "none", "{target}"]'
DISK = '{ layer = "file", size = "16M" }', '{ layer = "nbd-export" }, { layer = "connect" }'
GUESTS_DISK = DISK[0], '{ layer = "nbd-export" }, { layer = "nbd" }'
DIRECT = '["dd", "if={target}", "of=/dev/null", "bs=64k", "count=16", "iflag=direct"]'
FOLDER = '{ layer = "directory" }', '{ layer = "ssh-share" }, { layer = "sshfs" }'
DATABASE = (
    '{ layer = "directory" }, { layer = "postgresql", data = { tables = 1, rows = 500 } }',
    '{ layer = "connect" }',
)
WRITE = '["dd", "if=/dev/zero", "of={target}/file", "bs=64k", "count=16", "conv=fsync"]'
UPLINK = "network.uplink = true\n"
COMMAND = 'workload.load = { on = "client", command.argv = ARGV }\n'
SYSBENCH = 'workload.load = { on = "client", sysbench = { test = "oltp_read_write", threads = 1, runtime = "1s" } }\n'


@pytest.fixture
def machines(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Two hosts, joined by a second network, too. Neither they nor this machine's network may differ afterwards."""
    with hosts(lab.folder / "hosts", 2, [lab.scratch]) as made:
        lab.environment |= made.environment
        monkeypatch.setenv("STORLAB_SSH_CONFIG", str(made.config))
        one, other = (str(host.init) for host in made.hosts.values())
        output(*f"ip link add data0 netns {one} type veth peer name data0 netns {other}".split())
        user = next(line for line in Path("/etc/passwd").read_text().splitlines(True) if line.startswith("postgres:"))
        for number, host in enumerate(made.hosts.values(), 1):
            with (host.folder / "passwd").open("a") as passwd:
                passwd.write(user)
            host.run("ip", "address", "add", f"203.0.113.{number}/24", "dev", "data0")
            host.run("ip", "link", "set", "data0", "up")
        before = network_here(made), [network_of(made, name) for name in made.hosts]
        yield made
        assert (network_here(made), [network_of(made, name) for name in made.hosts]) == before
        for name, host in made.hosts.items():
            assert (host.processes(), host.mounts()) == ([], []), name
            assert host.run("ls", "-A", str(lab.scratch)).split() == [], name


def network_here(made: Hosts) -> list[str]:
    """What this machine's network consists of, as far as a run of a test could change it."""
    forwarding = Path(f"/proc/sys/net/ipv4/conf/{made.names}b/forwarding").read_text()
    tables = [line for line in output("nft", "list", "tables").splitlines() if lab_run(line)]
    return [forwarding, *tables, output("ip", "route", "show", "198.18.0.0/15")]


def lab_run(line: str) -> bool:
    return "storlab-" in line and not any(Path("/run/netns").glob(f"{line.split()[-1]}*"))


def network_of(made: Hosts, name: str) -> str:
    """The shape of a host's second interface, and its TCP."""
    show = "tc qdisc show dev data0; ip link show data0; ethtool -k data0"
    return made[name].run(
        "sh", "-c", f"{show}; cat /proc/sys/net/ipv4/tcp_sack /proc/sys/net/ipv4/tcp_congestion_control"
    )


def output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def study(made: Hosts, server: str, client: str, stacks: tuple[str, str], load: str) -> str:
    below, above = stacks
    nodes = f"nodes.server = {{ {server}, stack = [{below}] }}\n"
    nodes += f'nodes.client = {{ {client}, from = "server", stack = [{above}] }}\n'
    return HEAD + nodes.replace("NET", made.network) + load


@pytest.mark.parametrize(
    ("server", "client", "stacks", "load"),
    [
        pytest.param(LAB1, LAB2, DISK, COMMAND.replace("ARGV", READ), id="disk between hosts"),
        pytest.param(LAB1, 'kind = "local"', DISK, COMMAND.replace("ARGV", READ), id="disk of a host here"),
        pytest.param(HERE, LAB2, DISK, COMMAND.replace("ARGV", READ), id="disk of this machine on a host"),
        pytest.param(LAB1, 'kind = "netns"', DISK, UPLINK + COMMAND.replace("ARGV", READ), id="disk by the way out"),
        pytest.param(
            LAB1,
            'kind = "vm", memory = "192M"',
            GUESTS_DISK,
            UPLINK + COMMAND.replace("ARGV", DIRECT),
            id="disk in a guest by the way out",
            marks=pytest.mark.needs("guests"),
        ),
        pytest.param(LAB1, LAB2, FOLDER, COMMAND.replace("ARGV", WRITE), id="folder between hosts"),
        pytest.param(LAB1, LAB2, DATABASE, SYSBENCH, id="database between hosts"),
    ],
)
def test_machines_serve_and_use_what_others_serve(
    lab: Laboratory, machines: Hosts, server: str, client: str, stacks: tuple[str, str], load: str
) -> None:
    lab.succeed(study(machines, server, client, stacks, load))
    facts = [each for each in lab.records()[0].facts["client"] if each["layer"] == "connect"]
    at = f"{machines.network}.{254 if server == HERE else 1}"
    assert all(at in str(each["target"]) for each in facts)


def test_a_study_of_guests_runs_between_machines_as_the_command_line_says(lab: Laboratory, machines: Hosts) -> None:
    moved = [f"--set=nodes.{name}.hosts={host}" for name, host in (("server", "lab1"), ("client", "lab2"))]
    small = ["--set=files=20", "--set=runtime=200ms", f"--set=scratch={lab.scratch}", "--only=protocol=local,sshfs"]
    words: list[str | Path] = [*moved, *small, "--rounds=1", "--out", lab.out]
    result = lab.storlab("run", EXAMPLES / "shares.toml", *words, timeout=400)
    assert result.status == 0, str(result)
    assert "server: virtio-blk is left out, because these nodes are of kind ssh" in result.stdout, str(result)
    assert "Several machines did rounds" not in result.stdout, str(result)
    layers = {
        record.levels["protocol"]: {name: [each["layer"] for each in of] for name, of in record.facts.items()}
        for record in lab.records()
    }
    assert layers["local"]["client"] == ["file", "loop", "mkfs", "mount"], layers
    assert layers["sshfs"]["server"] == ["file", "loop", "mkfs", "mount", "ssh-share"], layers
    assert layers["sshfs"]["client"] == ["sshfs"], layers


AT1 = 'address = "203.0.113.1", interface = "data0"'
AT2 = AT1.replace("113.1", "113.2")
SHAPED = f"""
network = {{ mtu = 1400, bandwidth = "100Mbit", offload = false }}
nodes.server = {{ {LAB1}, {AT1}, tcp.sack = false, stack = [{DISK[0]}] }}
nodes.client = {{ {LAB2}, {AT2}, from = "server", stack = [{DISK[1]}] }}
"""


@pytest.mark.parametrize("killed", [False, True])
def test_an_interface_that_the_study_names_is_shaped_and_given_back(
    lab: Laboratory, machines: Hosts, killed: bool
) -> None:
    load = '["sleep", "3600"]' if killed else READ
    text = HEAD + SHAPED + COMMAND.replace("ARGV", load)
    if not killed:
        lab.succeed(text)
        for name in ("server", "client"):
            (shape,) = (each for each in lab.records()[0].facts[name] if each["layer"] == "network")
            assert (shape["interface"], shape["mtu"], shape["queues"][0]["bandwidth"]) == ("data0", 1400, 100_000_000)
        return
    process = lab.start_run(text)
    assert wait_until(lambda: process.poll() is not None or "sleep 3600" in machines["lab2"].processes(), 120)
    assert "mtu 1400" in network_of(machines, "lab1")
    kill(process)
    assert ended(process).status == -9
    result = lab.storlab("clean", lab.out)
    assert result.status == 0, str(result)
    assert "gave the interface data0 of server its shape back" in result.stdout, str(result)


@pytest.mark.parametrize(
    ("wrong", "right", "words"),
    [
        ('"data0"', '"data7"', "nodes.server.interface: node server has no network interface data7: it has "),
        ('"203.0.113.1"', '"203.0.113.9"', "nodes.server.address: node server has no address 203.0.113.9: it has "),
        ('address = "203.0.113.1", ', "", 'which data0 does not have: write address = "203.0.113.1", too'),
        (
            'address = "203.0.113.1", interface = "data0"',
            'interface = "eth0"',
            "nodes.server.interface: eth0 carries the connection by which node server is controlled",
        ),
    ],
)
def test_an_interface_that_will_not_do_is_refused_while_planning(
    lab: Laboratory, machines: Hosts, wrong: str, right: str, words: str
) -> None:
    result = lab.storlab("plan", lab.study(HEAD + SHAPED.replace(wrong, right, 1) + COMMAND.replace("ARGV", READ)))
    assert (result.status, result.stdout) == (2, ""), str(result)
    assert words in result.stderr, str(result)
