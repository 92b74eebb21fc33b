"""Other machines over SSH as nodes: real sshds, on hosts whose links and power can be cut."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attacks import MOMENTS, SEED
from laboratory import Ended, Laboratory, ended, kill, wait_until
from laboratory.hosts import CONTROLLER, Host, Hosts
from laboratory.studies import ON_LOOP
from storlab.nodes.kinds.ssh import LEASE
from storlab.report.language.say import say

pytestmark = pytest.mark.needs("root", "ssh", "sshd", "unshare")

STACK = f'[nodes.far]\nkind = "ssh"\nhosts = HOSTS\nstack = [{ON_LOOP}]\n'
STUDY = """
repeat = {{ until = "max", min = {rounds}, max = {rounds} }}
[probes]
{nodes}
[workload.load]
on = "far"
command = {{ argv = ["sh", "-c", '''{load}'''] }}
"""


ONCE = "if [ -e /var/tmp/been-there ]; then sleep 0.1; else exec sleep 3600; fi"


def been_there(machines: Hosts) -> None:
    """From now on, what takes long once does not."""
    for host in machines.hosts.values():
        (host.scratch / "been-there").touch()


def study(load: str, *names: str, rounds: int = 2, nodes: str = STACK) -> str:
    """A file system in a file on each of the hosts, and a command in it."""
    return STUDY.format(nodes=nodes.replace("HOSTS", str(list(names or ["lab1"]))), load=load, rounds=rounds)


def statuses(lab: Laboratory) -> list[str]:
    return [record.status for record in lab.records()]


def measuring(lab: Laboratory, machines: Hosts, process: subprocess.Popen[bytes], host: str = "lab1") -> None:
    """Wait until the load runs there."""
    runs = wait_until(lambda: process.poll() is not None or "sleep 3600" in machines[host].processes(), 60)
    assert runs and process.poll() is None, ended(process)


def working(machines: Hosts) -> list[str]:
    """What runs on the first host beside the session that holds the connection, which its sshd ends."""
    return [words for words in machines["lab1"].processes() if words != "cat"]


def test_stacks_are_set_up_on_all_hosts_and_torn_down_there(lab: Laboratory, machines: Hosts) -> None:
    load = "cat /etc/machine-id; df --output=fstype {target}"
    result = ended(lab.start_run(study(load, "lab1", "lab2"), wrapper=CONTROLLER), 400)
    assert result.status == 0, str(result)
    assert statuses(lab) == ["done", "done"]
    for number in (1, 2):
        raw = lab.out / "trials" / "0001" / f"far-{number}" / "load" / "stdout"
        own = (machines[f"lab{number}"].folder / "machine-id").read_text().strip()
        assert raw.read_text().split() == [own, "Type", "ext4"]
    agents = {line["node"]["name"] for line in lab.journal() if line.get("undo") == "processes.end"}
    assert agents == {"host", "far-1", "far-2"}, "one destination is one agent"
    cache = machines["lab1"].home / ".cache" / "storlab"
    assert [each.name[:6] for each in cache.iterdir()] == ["agent-"]


def replaced(host: Host, program: str, script: str) -> None:
    """Another program in the place of one there."""
    (host.folder / "program").write_text(f"#!/bin/sh\n{script}\n")
    (host.folder / "program").chmod(0o755)
    host.run("mount", "--bind", "/run/lab/program", program)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("down", "cannot reach lab2: ssh: connect to host {address} port 22: "),
        ("twice", "node far-2 (again) is node far-1 under another name"),
        ("here", "node far-2 (lab2) is this machine under another name"),
        ("scratch", "there is no directory"),
        ("architecture", "lab2: it is aarch64, and this Storlab has no agent for that: take"),
        ("space", "the stacks take up 64M on node far-2, but"),
        ("sudo", "let this login use it without a password (NOPASSWD in its sudoers)"),
    ],
)
def test_what_is_wrong_with_a_host_is_said_before_anything_runs(
    lab: Laboratory, machines: Hosts, change: str, words: str
) -> None:
    second, nodes = "lab2", STACK
    match change:
        case "down":
            machines.kill("lab2")
        case "twice":
            second = "again"
            config = machines.config.read_text()
            machines.config.write_text(config + config[: config.index("Host lab2")].replace("lab1", "again", 1))
        case "here":
            boot = Path("/proc/sys/kernel/random/boot_id").read_text()
            (machines["lab2"].folder / "boot").write_text(boot)
        case "scratch":
            machines["lab2"].run("rmdir", str(lab.scratch))
        case "space":
            machines["lab2"].run("mount", "-t", "tmpfs", "-o", "size=32M,mode=755", "small", str(lab.scratch))
        case "architecture":
            replaced(machines["lab2"], "/usr/bin/uname", "echo aarch64")
        case "sudo":
            nodes += 'become = "sudo"\n'
            if Path("/usr/bin/sudo").exists():
                replaced(machines["lab2"], "/usr/bin/sudo", "echo sudo: a password is required >&2; exit 1")
    result = ended(lab.start_run(study("true", "lab1", second, nodes=nodes)), 300)
    assert result.status == 2, str(result)
    assert words.format(address=machines["lab2"].address) in result.stderr
    assert not lab.out.exists() and "Traceback" not in result.stderr
    if change == "space":
        machines["lab2"].run("umount", str(lab.scratch))
    if change == "scratch":
        machines["lab2"].run("mkdir", str(lab.scratch))


def test_a_short_cut_of_the_link_harms_nothing(lab: Laboratory, machines: Hosts) -> None:
    process = lab.start_run(study("sleep 12", rounds=1), wrapper=CONTROLLER)
    assert wait_until(lambda: "sleep 12" in machines["lab1"].processes(), 60)
    machines.cut("lab1")
    time.sleep(6)
    machines.mend("lab1")
    result = ended(process, 300)
    assert (result.status, statuses(lab)) == (0, ["done"]), str(result)


def test_a_long_cut_ends_the_load_within_the_lease_and_the_host_is_used_again(lab: Laboratory, machines: Hosts) -> None:
    process = lab.start_run(study(ONCE, "lab1", "lab2"), wrapper=CONTROLLER)
    measuring(lab, machines, process)
    machines.cut("lab1")
    been_there(machines)
    assert wait_until(lambda: not working(machines), LEASE + 10), working(machines)
    machines.mend("lab1")
    result = ended(process, 200)
    assert result.status == 3, str(result)
    first, second = lab.records()
    assert (first.status, second.status) == ("failed", "done")
    assert first.reason is not None and "far-1" in first.reason and "host lost" in first.reason
    assert first.lost_after is not None, "it counts as a crash does"


def test_a_link_that_is_cut_for_good_stops_the_run_which_resumes_later(lab: Laboratory, machines: Hosts) -> None:
    process = lab.start_run(study(ONCE, rounds=3))
    measuring(lab, machines, process)
    machines.cut("lab1")
    been_there(machines)
    result = ended(process, 400)
    assert result.status == 3, str(result)
    assert "far can't be reached" in result.stderr and "resume" in result.stderr
    assert statuses(lab) == ["failed"], "no further trial was burned"
    assert "scratch.remove" in result.stderr, "what could not be torn down is listed"
    machines.mend("lab1")
    resumed = lab.storlab("resume", lab.out, timeout=300)
    assert statuses(lab) == ["failed", "done", "done"], str(resumed)


def test_a_host_that_was_off_is_named_and_only_what_outlives_a_boot_is_undone_there(
    lab: Laboratory, machines: Hosts
) -> None:
    process = lab.start_run(study("exec sleep 3600", rounds=1))
    measuring(lab, machines, process)
    kill(process)
    assert ended(process).status == -9
    assert wait_until(lambda: machines["lab1"].processes() == [], 20), "the agent there ends with its connection"
    machines.kill("lab1")
    unreached = clean(lab)
    assert unreached.status != 0
    assert "node far can't be reached: cannot reach lab1" in unreached.stdout
    machines.start("lab1")
    result = clean(lab)
    assert result.status == 0, str(result)
    names = {line["registered"]: line["undo"] for line in lab.journal() if "registered" in line}
    did = {names[line["undone"]]: line["did"] for line in lab.journal() if "undone" in line}
    assert {name for name, words in did.items() if words} <= {"file.remove", "scratch.remove", "processes.end"}
    assert did["file.remove"] is not None


CRASHING = """
primary = "elapsed"
repeat = { until = "max", min = 8, max = 8 }
factors.kernel.levels = ["sound", "crashing"]
[probes]
[nodes.far]
kind = "ssh"
hosts = ["lab1"]
stack = [{ layer = "directory" }]
[workload.load]
on = "far"
command = { argv = ["sh", "-c", '''
[ {kernel} = crashing ] || exec sleep 0.4
n=$(cat FOLDER/tries); echo $((n + 1)) > FOLDER/tries
case $n in 2|5) touch FOLDER/down; exec sleep 3600; esac'''] }
"""


def test_a_level_that_crashes_its_host_wins_nothing_by_the_rounds_that_it_survives(
    lab: Laboratory, machines: Hosts
) -> None:
    """Twice in eight; in the other six it is many times as fast, which alone would be a verdict."""
    there = machines["lab1"].tmp / lab.scratch.relative_to("/tmp")
    (there / "tries").write_text("0")
    process = lab.start_run(CRASHING.replace("FOLDER", str(lab.scratch)), "--unconfined")
    for _ in range(2):
        assert wait_until(lambda: process.poll() is not None or (there / "down").exists(), 120)
        assert process.poll() is None, ended(process)
        (there / "down").unlink()
        machines.reboot("lab1")
    result = ended(process, 300)
    (there / "tries").unlink()
    failed = [record for record in lab.records() if record.status == "failed"]
    assert [record.levels["kernel"] for record in failed] == ["crashing"] * 2, str(result)
    assert all(record.lost_after is not None and "host lost" in (record.reason or "") for record in failed), failed
    (comparison,) = json.loads(lab.storlab("report", lab.out, "--format", "json").stdout)["comparisons"]
    assert (comparison["rounds"], comparison["verdict"], result.status) == (6, "undecided", 3), comparison


def test_a_crash_of_the_agent_is_no_loss_of_its_host(lab: Laboratory, machines: Hosts) -> None:
    process = lab.start_run(study("exec sleep 3600", rounds=1))
    measuring(lab, machines, process)
    machines["lab1"].run("sh", "-c", "kill -9 $(pgrep -x storlab-agent)")
    result = ended(process, 300)
    assert result.status == 3, str(result)
    (record,) = lab.records()
    assert record.reason is not None and "host lost" not in record.reason and "far" in record.reason


DELAYED = """
import os, socket, sys, threading, time, queue
there = socket.create_connection((sys.argv[1], 22))
there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def carry(read, write, delay):
    waiting = queue.Queue()
    def deliver():
        while (item := waiting.get())[1]:
            time.sleep(max(0.0, item[0] - time.monotonic()))
            write(item[1])
        os._exit(0)
    threading.Thread(target=deliver).start()
    while piece := read(65536):
        waiting.put((time.monotonic() + delay, piece))
    waiting.put((0.0, b""))
threading.Thread(target=carry, args=(there.recv, lambda data: os.write(1, data), 0.010)).start()
carry(lambda size: os.read(0, size), there.sendall, 0.040)
"""


def test_a_path_whose_ways_are_unequal_bounds_the_skew_that_is_reported(lab: Laboratory, machines: Hosts) -> None:
    slow = lab.folder / "slow.py"
    slow.write_text(DELAYED)
    host = f"Host lab2\n  ProxyCommand {sys.executable} {slow} {machines['lab2'].address}\n"
    machines.config.write_text(host + machines.config.read_text())
    result = ended(lab.start_run(study("sleep 0.2", "lab1", "lab2", rounds=1)), 300)
    assert result.status == 0, str(result)
    (record,) = lab.records()
    assert record.start_skew_error is not None and record.start_skew is not None
    # The comparison puts a reading in the middle of its round trip, of which it is 15 ms away.
    assert record.start_skew < 0.010 or record.start_skew_error >= 0.015
    assert record.start_skew_error >= 0.024, "half of the 50 ms that a round trip takes at least"
    assert record.nodes["far-2"].clock_error >= 0.024
    assert any("apart" in say(warning) for warning in record.warnings)


@pytest.mark.parametrize("number", range(MOMENTS))
def test_a_controller_that_is_killed_leaves_nothing_running_and_resumes_with_each_trial_once(
    lab: Laboratory, machines: Hosts, number: int
) -> None:
    moment = random.Random(f"{SEED} {number}").uniform(0.0, 10.0)
    print(f"seed {SEED}, number {number}: killed after {moment:.2f} s")
    load = "echo x >>/var/tmp/loads; sleep 1"
    process = lab.start_run(study(load, "lab1", "lab2", rounds=3))
    assert wait_until(lambda: (lab.out / "journal.jsonl").exists() or process.poll() is not None, 120)
    wait_until(lambda: process.poll() is not None, moment)
    kill(process)
    ended(process)
    for host in machines.hosts.values():
        assert wait_until(lambda host=host: not host.processes(), 30), host.processes()  # type: ignore[misc]
    resumed = ended(lab.start("resume", lab.out), 300)
    assert resumed.status == 0, str(resumed)
    assert [record.trial for record in lab.records()] == [1, 2, 3]
    assert statuses(lab) == ["done"] * 3


def clean(lab: Laboratory) -> Ended:
    return lab.storlab("clean", lab.out)
