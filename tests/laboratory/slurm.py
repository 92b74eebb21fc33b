"""A Slurm cluster of several nodes on this machine, without systemd.

Each node is a set of namespaces with its own name, network, processes, and folder for scratch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from laboratory import wait_until
from laboratory.samples import sample

# sh, not slurmd, is process 1: it takes over and reaps what slurmd's own processes leave.
_NODE = """
hostname {name}
mount -t tmpfs none {own}
mkdir -p /run/storlab && mount -t tmpfs none /run/storlab
slurmd -D -N {name} &
while :; do wait; sleep 1; done
"""


@dataclass(frozen=True)
class Cluster:
    """Nodes m1 to mN. ``environment``: that of all of Slurm's commands."""

    folder: Path
    environment: dict[str, str]
    nodes: dict[str, subprocess.Popen[bytes]]

    def command(self, *words: str, folder: Path) -> str:
        """The output of one of Slurm's commands."""
        ran = subprocess.run(words, env=self.environment, cwd=folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
        return ran.stdout.strip()

    def power_off(self, node: str) -> None:
        """Kill a node with everything that runs there."""
        self.nodes[node].kill()


@contextmanager
def cluster(folder: Path, own: Path, nodes: int = 3) -> Iterator[Cluster]:
    """Up when it is entered, and gone with all of its processes and networks when it is left.

    ``own``: a folder of which each node has its own, empty.
    """
    folder.mkdir()
    (folder / "state").mkdir()
    environment = os.environ | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
    }
    environment.pop("STORLAB_LOCKS", None)  # nodes have locks of their own, like any other machines
    names = [f"m{number}" for number in range(1, nodes + 1)]
    lines = [f"NodeName={n} NodeAddr=10.77.0.{at} CPUs=2 RealMemory=500 State=UNKNOWN" for at, n in enumerate(names, 1)]
    partition = f"PartitionName=lab Nodes=m[1-{nodes}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE"
    text = "\n".join([sample(__file__, "cases/slurm.conf", folder=folder).strip(), *lines, partition])
    (folder / "slurm.conf").write_text(f"{text}\n")
    with ExitStack() as kept:
        _munge(kept)
        bridge = f"slb{os.getpid()}"
        kept.callback(_ip, "link", "delete", bridge)
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", "10.77.0.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        started = {}
        for at, name in enumerate(names, 1):
            inside = f"{bridge}-{name}"
            kept.callback(_ip, "netns", "delete", inside)
            _ip("netns", "add", inside)
            _ip("link", "add", f"sv{os.getpid()}-{at}", "type", "veth", "peer", "name", "eth0", "netns", inside)
            _ip("link", "set", f"sv{os.getpid()}-{at}", "master", bridge, "up")
            _ip("-n", inside, "address", "add", f"10.77.0.{at}/24", "dev", "eth0")
            _ip("-n", inside, "link", "set", "eth0", "up")
            _ip("-n", inside, "link", "set", "lo", "up")
            (folder / name).mkdir()
            apart = ["--uts", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]
            argv = ["nsenter", f"--net=/run/netns/{inside}", "unshare", *apart, "sh", "-c"]
            started[name] = _started(kept, [*argv, _NODE.format(name=name, own=own)], environment)
        _started(kept, ["unshare", "--uts", "sh", "-c", "hostname ctl; exec slurmctld -D -c"], environment)
        found = Cluster(folder, dict(environment), started)
        idle = ("sinfo", "--noheader", "--Node", "--format=%T")

        def ready() -> bool:
            ran = subprocess.run(idle, env=environment, capture_output=True, text=True, check=False)
            return ran.stdout.split() == ["idle"] * nodes

        assert wait_until(ready), (folder / "slurmctld.log").read_text()
        yield found


def _munge(kept: ExitStack) -> None:
    """munged signs what Slurm's programs send each other; its socket is a file, which all nodes see."""
    socket = Path("/run/munge/munge.socket.2")
    if subprocess.run(["pgrep", "-x", "munged"], stdout=subprocess.DEVNULL, check=False).returncode == 0:
        return
    for folder in ("/run/munge", "/var/log/munge", "/var/lib/munge"):
        subprocess.run(["install", "-d", "-o", "munge", "-g", "munge", "-m", "755", folder], check=True)
    key = Path("/etc/munge/munge.key")
    if not key.exists():
        key.write_bytes(os.urandom(1024))
    shutil.chown(key, "munge", "munge")
    key.chmod(0o400)
    as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
    munged = shutil.which("munged") or "/usr/sbin/munged"
    _started(kept, [*as_munge, munged, "--foreground", "--force"], dict(os.environ))
    assert wait_until(socket.exists, timeout=20)


def _started(kept: ExitStack, argv: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kept.callback(process.wait)
    kept.callback(process.kill)
    return process


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=False)
