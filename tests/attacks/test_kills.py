"""Whatever of a run is killed, at any moment, again and again: no finished trial is lost, and nothing is left.

Who is killed, when, and what is started next come from ``STORLAB_TEST_SEED``; a failing test prints its chain.
``STORLAB_ATTACKS`` is the number of chains, ``STORLAB_KILLS`` that of runs over a network; 210 of these have every
victim of every protocol once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from laboratory import Ended, Laboratory, ended, needs_root, wait_until
from laboratory.guests import guests, needs_guests, qemus
from laboratory.studies import LOOPS

SEED = int(os.environ.get("STORLAB_TEST_SEED", "2026"))
CHAINS = int(os.environ.get("STORLAB_ATTACKS", "20"))
KILLS = int(os.environ.get("STORLAB_KILLS", "2"))
WITH_GUESTS = 5  # every so many-th chain: they take longest
NETWORKED = max(KILLS // WITH_GUESTS, 1)  # of those over a network
MOST_KILLS = 3
_PROGRAMS = {"load": ("fio", "mkfs.ext4", "mkfs.xfs", "losetup", "qemu-img"), "server": ("qemu-nbd", "virtiofsd")}
NO_VERDICT_OF_OURS = {0, 1, 3, -signal.SIGKILL}
"""What may come of a command beside which things are killed: never 2, which blames its user."""

GUESTS = guests(
    "dd if=/dev/zero of=$target/x bs=64k count=16 conv=fsync status=none",
    rounds=2,
    stack='[{ layer = "file", size = "32M" }, { layer = "virtio-blk" }, { layer = "mkfs", type = "ext4" }, '
    '{ layer = "mount" }]',
)
FOLDERS = guests(
    "dd if=/dev/zero of=$target/x bs=64k count=16 conv=fsync status=none",
    rounds=2,
    memory='"256M"',
    stack='[{ layer = "directory" }, { layer = "virtiofsd" }, { layer = "virtiofs" }]',
)
_NETWORK = """
primary = "elapsed"
repeat = {{ until = "max", min = 2, max = 2 }}
trial = {{ settle = {{ sync = false, drop_caches = false }} }}
[probes]
[network]
mtu = 4000
bandwidth = "1Gbit"
[nodes.server]
kind = "{kind}"
stack = [{{ layer = "file", size = "64M" }}, {above}{{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount" }},
         {{ layer = "file", size = "16M" }}]
[nodes.client]
kind = "{kind}"
from = "server"
stack = [{crossing}]
[workload.load]
command = {{ argv = {load} }}
"""
NETWORK = _NETWORK.format(
    kind="netns",
    above='{ layer = "loop" }, ',
    crossing='{ layer = "nbd-export" }, { layer = "connect" }',
    load='["sh", "-c", "timeout 3 qemu-img bench -f raw -w -c 10000000 -t none {target}; true"]',
)


@dataclass(frozen=True)
class Protocol:
    """Layers of the server and of its client; commands that end what serves and what mounts, in their guests.

    Without ``unmount`` the client is the kernel alone, which only goes with its guest.
    """

    serve: str
    mount: str
    end: str
    unmount: str = ""
    share: bool = False


_TARGET = "echo 0 > $(echo /sys/kernel/config/%s/enable)"
PROTOCOLS = {
    "nbd": Protocol("nbd-export", "nbd", "pkill -KILL -x qemu-nbd", "pkill -KILL -x nbd-client"),
    "iscsi": Protocol("iscsi-target", "iscsi", _TARGET % "target/iscsi/iqn*/tpgt_1", "pkill -KILL -o -x iscsid"),
    "nvme-tcp": Protocol("nvme-target", "nvme-tcp", _TARGET % "nvmet/subsystems/nqn*/namespaces/1"),
    "aoe": Protocol("aoe-target", "aoe", "pkill -KILL -x vblade"),
    "nfs": Protocol("nfs-export", "nfs", "rpc.nfsd 0", share=True),
    "smb": Protocol("smb-share", "smb", "pkill -KILL -x ksmbd.mountd", share=True),
}
WITHIN = ("serving", "mounting")
"""Victims that only their own guest can end, in the first trial; the second finds the same server's guest."""
VICTIMS = ("controller", "server", "client", "serving", "agent", "mounting", "all")
_MOUNTED = ', { layer = "mkfs", type = "ext4", keep = "trial" }, { layer = "mount", keep = "trial" }'


def networked_guests(protocol: Protocol, script: str = "", on: str = "server") -> str:
    """Writes over this protocol; ``script`` runs beside them in the first trial."""
    file = "/load" if protocol.share else ""
    write = f"timeout 4 dd if=/dev/zero of={{target}}{file} bs=4k count=2000 oflag=direct; [ $? = 0 -o $? = 124 ]"
    beside = f"""
[workload.beside]
on = ["{on}"]
command = {{ argv = ["sh", "-c", "if [ {{trial}} = 1 ]; then {script}; fi"] }}
"""
    return f"""
primary = "elapsed"
repeat = {{ until = "max", min = 2, max = 2 }}
trial = {{ timeout = "90s", settle = {{ sync = false, drop_caches = false }} }}
[probes]
[nodes.server]
kind = "vm"
memory = "256M"
keep = "run"
stack = [{{ layer = "file", size = "64M" }}, {{ layer = "virtio-blk" }}{_MOUNTED if protocol.share else ""}]
[nodes.client]
kind = "vm"
memory = "256M"
from = "server"
stack = [{{ layer = "{protocol.serve}" }}, {{ layer = "{protocol.mount}", give_up = "4s" }}]
[workload.load]
on = ["client"]
command = {{ argv = ["sh", "-c", "{write}"] }}
{beside if script else ""}"""


@dataclass
class Chain:
    """One laboratory in which things are killed, within ``span`` seconds from the start or, ``from_guests``, from the
    first guest on.
    """

    lab: Laboratory
    study: str
    chance: random.Random
    span: float = 6.0
    from_guests: bool = False
    told: list[str] = field(default_factory=list)
    finished: dict[str, str] = field(default_factory=dict)

    def step(self, victim: str | None) -> Ended:
        """Begin, resume or clean; kill meanwhile, or not."""
        process, what = self._start(clean=victim is not None and self.chance.random() < 0.25)
        killed = 0 if victim is None else self._kill(process, victim)
        result = ended(process, 300)
        self.told.append(f"{what}, killed: {victim} ({killed}): status {result.status}")
        assert result.status in NO_VERDICT_OF_OURS, self._say(result)
        for word in ("Traceback", "Internal error", "internal error", "panicked"):
            assert word not in result.stderr, self._say(result)
        self._check_finished(result)
        return result

    def _start(self, *, clean: bool) -> tuple[subprocess.Popen[bytes], str]:
        if not (self.lab.out / "manifest.json").exists():
            # Who ends a server in its own guest is a load, which may do so only where loads may do anything.
            return self.lab.start_run(self.study, "--quiet", *["--unconfined"] * self.from_guests), "run"
        if clean:
            return self.lab.start("clean", self.lab.out), "clean"
        return self.lab.start("resume", self.lab.out, "--quiet"), "resume"

    def _kill(self, process: subprocess.Popen[bytes], victim: str) -> int:
        """How many processes were there to be killed."""
        wait_until(lambda: process.poll() is not None or not self.from_guests or qemus(self.lab))
        until = time.monotonic() + self.chance.uniform(0.0, self.span)
        wait_until(lambda: process.poll() is not None or time.monotonic() >= until)
        # A controller's agents come and go: whoever is meant may be there only a little later.
        wait_until(lambda: process.poll() is not None or self._victims(process, victim), 20)
        victims = self._victims(process, victim)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(victims)

    def _victims(self, process: subprocess.Popen[bytes], victim: str) -> list[int]:
        if process.poll() is not None:
            return []
        controller = [process.pid]
        if victim == "controller":
            return controller
        if victim == "qemu":
            return list(qemus(self.lab).values())[:1]
        if self.from_guests and victim in ("server", "client"):
            return [pid for name, pid in qemus(self.lab).items() if name == victim]
        commands = {pid: words for pid, words in self.lab.commands().items() if pid != process.pid}
        if victim == "all":
            return [*controller, *commands]
        if victim == "agent":
            return [pid for pid, words in commands.items() if "serve" in words[1:2]]
        names = {pid: [Path(word).name for word in words[:4]] for pid, words in commands.items()}  # one may be a loader
        return [pid for pid, found in names.items() if set(found) & set(_PROGRAMS[victim])][:1]

    def _check_finished(self, result: Ended) -> None:
        """What was once recorded stays as it was, to the byte."""
        found = {
            str(path.relative_to(self.lab.out)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.lab.out.glob("trials/*/trial.json")
        }
        lost = {name for name, content in self.finished.items() if found.get(name) != content}
        assert not lost, f"{sorted(lost)} lost or changed: {self._say(result)}"
        self.finished = found

    def _say(self, result: Ended) -> str:
        return "\n".join([f"STORLAB_TEST_SEED={SEED}", *self.told, str(result)])


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with contextlib.closing(Laboratory(tmp_path)) as made:
        yield made


def kill_again_and_again(lab: Laboratory, study: str, number: int, victims: tuple[str, ...]) -> None:
    chain = Chain(lab, study, random.Random(f"{SEED}/{number}"))
    for _ in range(chain.chance.randint(1, MOST_KILLS)):
        chain.step(chain.chance.choice(victims))
    result = chain.step(None)
    print(f"STORLAB_TEST_SEED={SEED}, chain {number}:", *chain.told, sep="\n  ")
    assert result.status in (0, 3), chain._say(result)
    records = lab.records()
    assert [record.trial for record in records] == list(range(1, len(records) + 1)), chain._say(result)
    assert lab.run_folder.manifest.finished is not None, chain._say(result)
    lab.storlab("clean", "--yes")  # what was killed before it had a run folder
    assert lab.leftovers() == [], chain._say(result)


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("number", [number for number in range(CHAINS) if number % WITH_GUESTS])
def test_a_run_of_which_anything_is_killed_loses_no_finished_trial_and_leaves_nothing(
    lab: Laboratory, number: int
) -> None:
    kill_again_and_again(lab, LOOPS, number, ("controller", "controller", "agent", "load", "all"))


@needs_guests
@pytest.mark.slow
@pytest.mark.parametrize("number", [number for number in range(CHAINS) if number % WITH_GUESTS == 0])
def test_a_run_with_guests_of_which_anything_is_killed_loses_no_finished_trial_and_leaves_nothing(
    lab: Laboratory, number: int
) -> None:
    of_shares = number % 2 == 1
    victims = ("controller", "agent", "qemu", "all", *(("server",) if of_shares else ()))
    kill_again_and_again(lab, FOLDERS if of_shares else GUESTS, number, victims)


def clean_after(chain: Chain, victim: str | None) -> None:
    """As whoever gives up on a run does: nothing is resumed."""
    result = chain.step(victim)
    print(f"STORLAB_TEST_SEED={SEED}:", *chain.told)
    cleaned = chain.lab.storlab("clean", "--yes")
    assert cleaned.status == 0, f"{chain._say(result)}\n{cleaned}"
    assert chain.lab.leftovers() == [], f"{chain._say(result)}\n{cleaned}"


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS - NETWORKED))
def test_a_run_over_a_network_of_which_anything_is_killed_is_cleaned(lab: Laboratory, number: int) -> None:
    chain = Chain(lab, NETWORK, random.Random(f"{SEED}/network/{number}"))
    clean_after(chain, chain.chance.choice(("controller", "controller", "agent", "server", "load", "all")))


@needs_guests
@pytest.mark.slow
@pytest.mark.parametrize("number", range(NETWORKED))
def test_a_run_over_a_network_of_guests_of_which_anything_is_killed_is_cleaned(lab: Laboratory, number: int) -> None:
    turn, at = divmod(number, len(PROTOCOLS))
    name, protocol = list(PROTOCOLS.items())[at]
    victim = VICTIMS[turn % len(VICTIMS)]
    print(f"network {number}: {name}, {victim}")
    if victim == "mounting" and not protocol.unmount:
        victim = "client"
    chance = random.Random(f"{SEED}/guests/{number}")
    if victim not in WITHIN:
        clean_after(Chain(lab, networked_guests(protocol), chance, span=25.0, from_guests=True), victim)
        return
    ends, on = (protocol.end, "server") if victim == "serving" else (protocol.unmount, "client")
    study = networked_guests(protocol, f"sleep {chance.uniform(0, 3):.2f}; {ends}", on)
    clean_after(Chain(lab, study, chance, from_guests=True), None)
    outcomes = [(record.status, record.reason) for record in lab.records()]
    print(outcomes)
    assert [status for status, _ in outcomes] == ["failed", "done"], outcomes
