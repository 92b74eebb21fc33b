from __future__ import annotations

import errno

import pytest

from storlab.doctor import kernel, tracing

from .fake_machine import FakeMachine

PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def test_ebpf_that_is_refused_has_root_as_remedy() -> None:
    check = tracing.bpf(FakeMachine(syscall=-errno.EPERM), "x86_64")
    assert (check.status, check.remedy) == ("missing", "run it as root, or with CAP_BPF and CAP_PERFMON")
    assert tracing.bpf(FakeMachine(syscall=-errno.ENOSYS), "x86_64").says.startswith("this kernel")


def test_ebpf_is_not_tried_where_the_number_of_its_system_call_is_unknown() -> None:
    assert tracing.bpf(FakeMachine(), "riscv64").status == "warn"


def test_tracefs_need_not_be_mounted_but_the_kernel_must_have_it() -> None:
    assert tracing.tracepoints(FakeMachine({"/proc/filesystems": "nodev\ttracefs"})).status == "ok"
    assert tracing.tracepoints(FakeMachine({"/proc/filesystems": ""})).status == "missing"
    assert tracing.tracepoints(FakeMachine(root=False)).says == "only root may read tracefs"
    event = "/sys/kernel/debug/tracing/events/block/block_rq_issue/format"
    assert tracing.tracepoints(FakeMachine({event: "name: block_rq_issue"})).says == "/sys/kernel/debug/tracing"


@pytest.mark.parametrize(
    ("level", "capabilities", "status"), [("2", 0, "warn"), ("2", 1 << 38, "ok"), ("0", 0, "ok"), ("-1", 0, "ok")]
)
def test_perf_events_need_a_capability_or_a_lenient_kernel(level: str, capabilities: int, status: str) -> None:
    machine = FakeMachine({PARANOID: level})
    machine.capabilities = capabilities
    assert tracing.perf(machine).status == status


def test_hardware_counters_are_found_on_each_architecture() -> None:
    for name in ("cpu", "cpu_core", "armv8_pmuv3_0"):
        machine = FakeMachine({f"/sys/bus/event_source/devices/{name}/type": "4"})
        assert tracing.counters(machine).says == name
    assert tracing.counters(FakeMachine({"/sys/bus/event_source/devices/software/type": "1"})).status == "missing"


def test_a_network_namespace_lives_only_as_long_as_the_program_that_tries_it() -> None:
    machine = FakeMachine(programs={"ip": "", "unshare": ""})
    assert kernel.namespaces(machine).status == "ok"
    assert machine.ran == [["unshare", "--net", "true"]]
    refused = FakeMachine(programs={"ip": "", "unshare": "unshare failed: Operation not permitted!"})
    assert kernel.namespaces(refused).status == "missing"


STARTED = (
    '{"event":"started","hook":"%s","reason":%s,"disks":[],"latency":true,"without":[],'
    '"monotonic_ns":1,"realtime_ns":1}'
)


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (STARTED % ("btf", "null") + "\n{}", "ok", "attaches with BTF"),
        (
            STARTED % ("tracepoint", '"this kernel has no BTF"'),
            "warn",
            "classic tracepoints, not with BTF: this kernel",
        ),
        ("storlab-agent: block I/O can't be traced: no permission!", "missing", "block I/O can't be traced: no perm"),
    ],
)
def test_block_io_is_traced_for_a_moment_to_know_how_it_can_be(
    said: str, status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "agent_path", lambda: "agent")
    check = tracing.block_io(FakeMachine(programs={"agent": said}))
    assert check.status == status
    assert words in check.says
