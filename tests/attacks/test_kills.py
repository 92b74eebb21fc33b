"""Whatever is killed, at any moment, again and again: no finished trial or test is lost, and nothing is left.

Who is killed, when, and what is started next come from the seed; a failing test prints its chain. `make test` has four
chains: of a run on this machine, of one with guests, of one over a network, and of a suite. ``STORLAB_ATTACKS`` is the
number of chains of runs, ``STORLAB_KILLS`` of those over a network (210 have every victim of every protocol once), and
``STORLAB_SUITE_KILLS`` says how often a suite's controller is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from attacks import ATTACKS, SEED
from laboratory import Ended, Laboratory, ended, kill, wait_until
from laboratory.guests import guests, qemus
from laboratory.samples import sample
from laboratory.studies import LOOPS
from storlab.suites.records.folder import RESULTS, read_suite_run

KILLS = int(os.environ.get("STORLAB_KILLS", "1"))
SUITE_KILLS = int(os.environ.get("STORLAB_SUITE_KILLS", "1"))
WITH_GUESTS = 5  # every so many-th chain: they take longest
MOST_KILLS = 3 if ATTACKS else 2
_PROGRAMS = {"load": ("fio", "mkfs.ext4", "mkfs.xfs", "losetup", "qemu-img"), "server": ("qemu-nbd", "virtiofsd")}
NO_VERDICT_OF_OURS = {0, 1, 3, -signal.SIGKILL}
"""What may come of a command beside which things are killed: never 2, which blames its user."""

_WRITES = "dd if=/dev/zero of=$target/x bs=64k count=16 conv=fsync status=none"
_DISK = '{ layer = "file", size = "32M" }, { layer = "virtio-blk" }'
_MOUNTED = ', { layer = "mkfs", type = "ext4"%s }, { layer = "mount"%s }'
_KEPT = ', keep = "trial"'
GUESTS = guests(_WRITES, rounds=2, stack=f"[{_DISK}{_MOUNTED % ('', '')}]")
FOLDERS = guests(
    _WRITES, rounds=2, memory='"256M"',
    stack='[{ layer = "directory" }, { layer = "virtiofsd" }, { layer = "virtiofs" }]',
)  # fmt: skip
NETWORK = sample(__file__, "cases/network.toml")


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


def networked_guests(protocol: Protocol, script: str = "", on: str = "server") -> str:
    """Writes over this protocol; ``script`` runs beside them in the first trial."""
    file = "/load" if protocol.share else ""
    write = f"timeout 4 dd if=/dev/zero of={{target}}{file} bs=4k count=2000 oflag=direct; [ $? = 0 -o $? = 124 ]"
    beside = f"""[workload.beside]
on = ["{on}"]
command = {{ argv = ["sh", "-c", "if [ {{trial}} = 1 ]; then {script}; fi"] }}"""
    words = {"serve": protocol.serve, "mount": protocol.mount, "write": write, "beside": beside if script else ""}
    mounted = _MOUNTED % (_KEPT, _KEPT) if protocol.share else ""
    return sample(__file__, "cases/networked-guests.toml", mounted=mounted, **words)


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
        assert result.status in NO_VERDICT_OF_OURS, self.say(result)
        for word in ("Traceback", "Internal error", "internal error", "panicked"):
            assert word not in result.stderr, self.say(result)
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
        assert not lost, f"{sorted(lost)} lost or changed: {self.say(result)}"
        self.finished = found

    def say(self, result: Ended) -> str:
        return "\n".join([f"STORLAB_TEST_SEED={SEED}", *self.told, str(result)])


def kill_again_and_again(lab: Laboratory, study: str, number: int, victims: tuple[str, ...]) -> None:
    chain = Chain(lab, study, random.Random(f"{SEED}/{number}"))
    for _ in range(chain.chance.randint(1, MOST_KILLS)):
        chain.step(chain.chance.choice(victims))
    result = chain.step(None)
    print(f"STORLAB_TEST_SEED={SEED}, chain {number}:", *chain.told, sep="\n  ")
    assert result.status in (0, 3), chain.say(result)
    records = lab.records()
    assert [record.trial for record in records] == list(range(1, len(records) + 1)), chain.say(result)
    assert lab.run_folder.manifest.finished is not None, chain.say(result)
    lab.storlab("clean", "--yes")  # what was killed before it had a run folder
    assert lab.leftovers() == [], chain.say(result)


@pytest.mark.needs("root")
@pytest.mark.parametrize("number", [number for number in range(ATTACKS or 2) if number % WITH_GUESTS])
def test_a_run_of_which_anything_is_killed_loses_no_finished_trial_and_leaves_nothing(
    lab: Laboratory, number: int
) -> None:
    kill_again_and_again(lab, LOOPS, number, ("controller", "controller", "agent", "load", "all"))


@pytest.mark.needs("guests")
@pytest.mark.parametrize("number", range(0, ATTACKS or 1, WITH_GUESTS))
def test_a_run_with_guests_of_which_anything_is_killed_loses_no_finished_trial_and_leaves_nothing(
    lab: Laboratory, number: int
) -> None:
    of_shares = (SEED + number) % 2 == 1
    victims = ("controller", "agent", "qemu", "all", *(("server",) if of_shares else ()))
    kill_again_and_again(lab, FOLDERS if of_shares else GUESTS, number, victims)


@pytest.mark.needs("guests")
@pytest.mark.parametrize("number", range(KILLS))
def test_a_run_over_a_network_of_which_anything_is_killed_is_cleaned(lab: Laboratory, number: int) -> None:
    """As whoever gives up on a run does: nothing is resumed. Between namespaces most times, and between guests."""
    turn = SEED + number
    if turn % WITH_GUESTS:
        chance = random.Random(f"{SEED}/network/{number}")
        victim = chance.choice(("controller", "controller", "agent", "server", "load", "all"))
        clean_after(Chain(lab, NETWORK, chance), victim)
    else:
        kill_between_guests(lab, turn // WITH_GUESTS, random.Random(f"{SEED}/guests/{number}"))


def clean_after(chain: Chain, victim: str | None) -> None:
    result = chain.step(victim)
    print(f"STORLAB_TEST_SEED={SEED}:", *chain.told)
    cleaned = chain.lab.storlab("clean", "--yes")
    assert cleaned.status == 0, f"{chain.say(result)}\n{cleaned}"
    assert chain.lab.leftovers() == [], f"{chain.say(result)}\n{cleaned}"


def kill_between_guests(lab: Laboratory, number: int, chance: random.Random) -> None:
    turn, at = divmod(number, len(PROTOCOLS))
    name, protocol = list(PROTOCOLS.items())[at]
    victim = VICTIMS[turn % len(VICTIMS)]
    print(f"network {number}: {name}, {victim}")
    if victim == "mounting" and not protocol.unmount:
        victim = "client"
    if victim not in WITHIN:
        clean_after(Chain(lab, networked_guests(protocol), chance, span=25.0, from_guests=True), victim)
        return
    ends, on = (protocol.end, "server") if victim == "serving" else (protocol.unmount, "client")
    study = networked_guests(protocol, f"sleep {chance.uniform(0, 3):.2f}; {ends}", on)
    clean_after(Chain(lab, study, chance, from_guests=True), None)
    outcomes = [(record.status, record.reason) for record in lab.records()]
    print(outcomes)
    assert [status for status, _ in outcomes] == ["failed", "done"], outcomes


_GROUPS, _TESTS = 4, 3
_FURTHEST = 12.0  # s from the start; on a machine that does nothing else it is through by then
_FURTHEST_ON = 2.0  # s from a test's result; those of one guest take that long
_AT_REST = 60.0
_NAMES = [f"{group}/{test}" for group in range(_GROUPS) for test in range(_TESTS)]
_SUITE = "[guests]\ndisks = 0\n" + "".join(
    f"[groups.{group}]\ntests = [\n"
    + "".join(f'    {{ name = "{test}", run = "echo begins; sleep 0.3; echo ends" }},\n' for test in range(_TESTS))
    + "]\n"
    for group in range(_GROUPS)
)


@pytest.mark.needs("guests")
def test_a_suite_whose_controller_is_killed_at_any_moment_has_each_test_once(lab: Laboratory) -> None:
    draw = random.Random(f"{SEED}/suite")
    suite = lab.folder / "suite.toml"
    suite.write_text(_SUITE)
    killed, began = 0, False
    while killed < SUITE_KILLS:
        words = ("resume", lab.out) if began else ("run", suite, "--out", lab.out, "--guests", "2")
        running = lab.start("suite", *words)
        moment = wait_for_moment(lab, running, draw)
        if running.poll() is not None:  # it was through before: another run takes the rest of the kills
            assert ended(running, 10).status == 0
            check_suite(lab)
            lab.storlab("clean", lab.out)
            lab.out.rename(lab.folder / f"done-{time.monotonic_ns()}")
            began = False
            continue
        kill(running)
        ended(running, 60)
        killed += 1
        print(f"STORLAB_TEST_SEED={SEED}, kill {killed}: {words[0]}, {moment}; {results(lab)} results")
        assert wait_until(lambda: not qemus(lab), _AT_REST), f"killed {moment}, and guests are still there"
        began = (lab.out / "suite.json").exists()
        if began and draw.random() < 0.5:
            assert lab.storlab("clean", lab.out).status == 0
        if not began and lab.out.exists():  # killed before any test was known: resume says so, and clean tears it down
            refused = lab.storlab("suite", "resume", lab.out)
            assert refused.status in (1, 2) and "Traceback" not in refused.stderr, refused
            assert lab.storlab("clean", lab.out).status == 0
            assert lab.leftovers() == [], moment
            lab.out.rename(lab.folder / f"unknown-{killed}")
    if began:
        said = lab.storlab("suite", "resume", lab.out, timeout=300)
        assert said.status == 0, said
        check_suite(lab)


def wait_for_moment(lab: Laboratory, running: subprocess.Popen[bytes], draw: random.Random) -> str:
    """Until a random moment: from the start on, or, however long guests took until then, from a test's result on."""
    before, moment = results(lab), draw.uniform(0.0, _FURTHEST)
    among_tests = draw.random() < 0.5
    if among_tests:
        moment = draw.uniform(0.0, _FURTHEST_ON)
        wait_until(lambda: running.poll() is not None or results(lab) > before, _AT_REST * 5)
    until = time.monotonic() + moment
    wait_until(lambda: running.poll() is not None or time.monotonic() >= until)
    return f"{moment:.2f} s after {'its first result' if among_tests else 'its start'}"


def results(lab: Laboratory) -> int:
    path = lab.out / RESULTS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_suite(lab: Laboratory) -> None:
    """Each test has one result and what it printed whole; nothing else is there."""
    run = read_suite_run(lab.out)
    tests = ["/".join(each.path.split("/")[-2:]) for each in run.attempts if each.role == "test"]
    assert sorted(tests) == _NAMES and run.without_result == [] and run.finished is not None
    for each in run.attempts:
        assert (lab.out / each.folder / "stdout").read_text() == "begins\nends\n", each
    assert lab.leftovers() == [] and not [*Path("/var/tmp").glob(f"storlab-{lab.identity}*")]
