"""Probe ``processes`` on made-up samples: processes that come, go and are replaced, under any name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.findings.runs import TooFewSamples
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.processes import ProcessesProbe
from storlab.probes.procfs import ProcessStat, parse_process_stat, parse_resident
from storlab.probes.subject import ProcessGroup, Subject

from . import write_samples

WINDOW = Window(10.0, 20.0)
MIB = 1024 * 1024


def stat_text(pid: int, name: str = "qemu-system-x86", ticks: int = 0, begun: int = 4242, state: str = "S") -> str:
    """A line of /proc/PID/stat; ``ticks`` of CPU time, a third of them the kernel's."""
    system = ticks // 3
    return (
        f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 4194304 977 0 11 0 {ticks - system} {system} 7 5 20 0 5 0 {begun} "
        "1291845632 52113 18446744073709551615 1 1 0 0 0 0 268444224 0 16902 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )


def status_text(resident: int) -> str:
    return f"Name:\tqemu-system-x86\nVmPeak:\t 1261568 kB\nVmRSS:\t{resident // 1024:8} kB\nThreads:\t5\n"


Look = tuple[str | None, str | None]


def write(raw: Path, guests: Mapping[str, int], samples: Sequence[tuple[float, Mapping[str, Look]]]) -> ProbeRecord:
    """What a probe left; ``samples`` are times with stat and status of each guest."""
    paths = [f"/proc/{pid}/{what}" for pid in guests.values() for what in ("stat", "status")]
    write_samples(raw, paths, *((t, [text for guest in guests for text in looks[guest]]) for t, looks in samples))
    processes = {name: ProcessGroup(role="guest", pid=pid) for name, pid in guests.items()}
    return ProbeRecord(raw, WINDOW, Subject(group="host", end="below", processes=processes))


def looks(pid: int, ticks: int, resident: int = 400 * MIB, begun: int = 4242) -> Look:
    return stat_text(pid, ticks=ticks, begun=begun), status_text(resident)


GONE: Look = (None, None)


def test_cpus_are_those_kept_busy_and_memory_is_that_at_the_end(tmp_path: Path) -> None:
    samples = [
        (9.5 + second, {"vm-1": looks(71, 100 * second), "vm-2": looks(72, 25 * second, (200 + second) * MIB)})
        for second in range(12)
    ]
    measured = ProcessesProbe().parse(write(tmp_path, {"vm-1": 71, "vm-2": 72}, samples))
    assert measured.totals() == {
        "guest.vm-1.cpu": pytest.approx(1.0), "guest.vm-1.memory": 400 * MIB, "guest.vm-2.cpu": pytest.approx(0.25),
        "guest.vm-2.memory": 211 * MIB, "guests.cpu": pytest.approx(1.25),
    }  # fmt: skip
    series = measured.series.filter(pl.col("metric") == "guest.vm-1.cpu")
    assert series["t"].to_list() == pytest.approx([0.5 + second for second in range(11)])
    assert series["value"].to_list() == pytest.approx([1.0] * 11)
    assert measured.warnings == ()


@pytest.mark.parametrize("after", [GONE, looks(71, 5, begun=9999), (stat_text(71, state="Z"), "Name:\tqemu\n")])
def test_a_guest_that_dies_midway_counts_for_as_long_as_it_was_there(tmp_path: Path, after: Look) -> None:
    samples = [(9.0 + s, {"vm-1": looks(71, 200 * s) if s <= 4 else after}) for s in range(13)]
    measured = ProcessesProbe().parse(write(tmp_path, {"vm-1": 71}, samples))
    assert measured.totals()["guest.vm-1.cpu"] == pytest.approx(2.0)
    assert measured.warnings == ("processes: vm-1's QEMU was gone 3.0 s after the measured phase began",)


def test_a_guest_that_was_never_seen_is_a_warning_and_a_machine_without_guests_says_nothing(tmp_path: Path) -> None:
    samples = [(9.5 + s, {"vm-1": GONE, "vm-2": looks(72, 50 * s)}) for s in range(12)]
    measured = ProcessesProbe().parse(write(tmp_path, {"vm-1": 71, "vm-2": 72}, samples))
    assert measured.totals()["guests.cpu"] == pytest.approx(0.5)
    assert measured.found == (TooFewSamples("processes", "vm-1's QEMU"),)
    measured = ProcessesProbe().parse(ProbeRecord(tmp_path, WINDOW, Subject(group="host")))
    assert measured.metrics.is_empty()
    assert measured.warnings == ()


SERVER = ProcessGroup(role="server", pid=71, cgroup="/sys/fs/cgroup/db")


@pytest.mark.parametrize(("memory", "resident"), [(f"{90 * MIB}\n", 90 * MIB), (None, 5 * MIB)])
def test_a_server_counts_with_all_its_processes_where_the_kernel_does(
    tmp_path: Path, memory: str | None, resident: int
) -> None:
    paths = ["/proc/71/stat", "/proc/71/status", "/sys/fs/cgroup/db/cpu.stat", "/sys/fs/cgroup/db/memory.current"]
    cpu = [f"usage_usec {1_500_000 * second}\nuser_usec 0\n" for second in range(12)]
    contents = [[*looks(71, 10 * at, resident=5 * MIB), spent, memory] for at, spent in enumerate(cpu)]
    write_samples(tmp_path, paths, *((9.5 + second, each) for second, each in enumerate(contents)))
    subject = Subject(group="store", end="below", processes={"mariadb": SERVER})
    measured = ProcessesProbe().parse(ProbeRecord(tmp_path, WINDOW, subject))
    assert measured.totals() == {
        "server.mariadb.cpu": pytest.approx(1.5), "server.mariadb.memory": resident, "servers.cpu": pytest.approx(1.5),
    }  # fmt: skip


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=15)
names_like = st.one_of(names, st.text(st.sampled_from("() S0 1\n")), st.sampled_from([")", "(", ") S 1 (", "a) R"]))


@given(names_like, st.integers(1, 2**22), st.integers(0, 2**40), st.integers(0, 2**50))
def test_a_process_may_have_any_name(name: str, pid: int, ticks: int, begun: int) -> None:
    assert parse_process_stat(stat_text(pid, name, ticks, begun)) == ProcessStat(name, "S", ticks / 100, begun)


def test_this_process_reads_itself() -> None:
    found = parse_process_stat(Path("/proc/self/stat").read_text())
    assert found is not None and found.state == "R" and found.cpu_time > 0
    assert parse_process_stat("1 (x) S" + " -1" * 20) is None
    resident = parse_resident(Path("/proc/self/status").read_text())
    assert resident is not None and resident > MIB
