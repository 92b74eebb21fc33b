"""Machines over SSH that boot a kernel once a round, on hosts that are namespaces: ``laboratory.hosts``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, wait_until
from laboratory.boots import booting
from laboratory.hosts import CONTROLLER, Hosts, hosts

pytestmark = pytest.mark.needs("root", "ssh", "sshd", "unshare")

STUDY = """
primary = "elapsed"
repeat = {{ until = "max", min = 2, max = 2 }}
[probes]
[factors.kernel]
levels = ["6.99.0-a", "6.99.0-b"]
[factors.size]
levels = ["1", "2"]
[nodes.far]
kind = "ssh"
hosts = ["lab1"]
boot = "{boot}"
console = "{console}"
kernel = "{{kernel}}"
stack = [
    {{ layer = "file", size = "16M" }},
    {{ layer = "loop" }},
    {{ layer = "mkfs", type = "ext4" }},
    {{ layer = "mount" }},
]
[workload.load]
on = "far"
command = {{ argv = ["sh", "-c", "{load}", "load", "{{size}}"] }}
"""
OWN = """
printf '#!/bin/sh\\ntouch /tmp/reboot\\n' >/run/own; chmod 755 /run/own; mount --bind /run/own /usr/bin/systemctl
"""
KERNELS = {"6.99.0-a", "6.99.0-b"}


@pytest.fixture
def machines(lab: Laboratory) -> Iterator[Hosts]:
    with hosts(lab.folder / "hosts", 1, [lab.scratch]) as made:
        lab.environment |= made.environment
        yield made
    for left in lab.leftovers():  # cgroups are this machine's: a boot does not empty them, as it would elsewhere
        if left.startswith("cgroup ") and left.endswith("-far"):
            Path(left.removeprefix("cgroup ")).rmdir()


def console(folder: Path, feed: Path) -> str:
    feed.touch()
    path = folder / "console"
    path.write_text(f"#!/bin/sh\nexec tail -n +1 -f {feed}\n")
    path.chmod(0o755)
    return str(path)


def rebooting(machines: Hosts, folder: Path) -> threading.Thread:
    """Its own ``reboot`` brings the machine back with its usual kernel, once: for as long as it is up, it is that."""
    asked = folder / "asked"

    def wait() -> None:
        host = machines["lab1"]
        while not (host.tmp / "reboot").exists():
            if asked.exists():
                return
            threading.Event().wait(0.1)
        (host.tmp / "reboot").unlink()
        machines.reboot("lab1")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_cells_of_one_kernel_share_a_boot_and_each_kernel_boots_once_a_round(lab: Laboratory, machines: Hosts) -> None:
    asked: list[str] = []

    def obey(name: str, release: str) -> None:
        asked.append(release)
        machines.reboot(name, release)
        # Its own way to boot again, as systemd has it.
        machines[name].run("sh", "-c", OWN)

    thread = rebooting(machines, lab.folder)
    with booting(lab.folder, obey) as program:
        text = STUDY.format(
            boot=program, console=console(lab.folder, lab.folder / "feed"), load="cat /proc/sys/kernel/osrelease"
        )
        allowed = ["--allow-code", program, "--allow-code", str(lab.folder / "console")]
        result = ended(lab.start_run(text, *allowed), 400)
    assert result.status == 0, str(result)
    records = sorted(lab.records(), key=lambda record: record.trial)
    assert [record.status for record in records] == ["done"] * 8
    for record in records:
        raw = lab.out / "trials" / f"{record.trial:04}" / "far" / "load" / "stdout"
        assert raw.read_text().strip() == record.levels["kernel"] == record.guests["far"]["kernel"]
    boots = {(record.round, record.levels["kernel"], record.guests["far"]["boot_id"]) for record in records}
    assert len(boots) == len({boot for _, _, boot in boots}) == 4, "two sizes in each boot, two boots a round"
    assert len(asked) == 4 and {*asked[:2]} == {*asked[2:]} == KERNELS
    thread.join(60)
    assert not thread.is_alive() and "6.99" not in machines["lab1"].run("cat", "/proc/sys/kernel/osrelease")


def test_programs_of_a_study_are_not_run_without_leave(lab: Laboratory, machines: Hosts) -> None:
    text = STUDY.format(boot="/srv/boot", console="/srv/console", load="true")
    result = ended(lab.start_run(text, wrapper=CONTROLLER), 120)
    assert result.status == 2 and "allow it with --allow-code /srv/boot" in result.stderr, str(result)


def test_a_panic_on_the_console_is_why_a_trial_failed(lab: Laboratory, machines: Hosts) -> None:
    feed, booted = lab.folder / "feed", threading.Event()

    def obey(name: str, release: str) -> None:
        machines.reboot(name, release)
        booted.set()

    def panic() -> None:
        with feed.open("a") as said:
            said.write("[ 9.1] Kernel panic - not syncing: Fatal exception\n")
        machines.reboot("lab1")

    with booting(lab.folder, obey) as program:
        load = "sleep 3600"
        text = STUDY.format(boot=program, console=console(lab.folder, feed), load=load)
        allowed = ["--allow-code", program, "--allow-code", str(lab.folder / "console"), "--rounds", "1"]
        process = lab.start_run(text, *allowed, "--only", "size=1", "--only", "kernel=6.99.0-a")
        assert booted.wait(100)
        assert wait_until(lambda: "sleep 3600" in machines["lab1"].processes(), 100)
        panic()
        result = ended(process, 200)
    (record,) = lab.records()
    assert record.status == "failed" and record.reason is not None, str(result)
    assert "the kernel of far panicked: Fatal exception" in record.reason
