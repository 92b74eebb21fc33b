from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storlab.doctor import virtual
from storlab.errors import MissingImage, MissingTool
from storlab.nodes.kinds.vm.accelerator import Acceleration
from storlab.nodes.kinds.vm.confinement import Confinement

from .fake_machine import FakeMachine

KVM = {"/dev/kvm": ""}
DIES = "/dev/kvm answers, but a guest dies in it: KVM internal error. Suberror: 1"


@pytest.fixture(autouse=True)
def kvm_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "_api_version", lambda: 12)


def boots(found: Acceleration | Exception) -> Callable[[], Acceleration]:
    def boot() -> Acceleration:
        if isinstance(found, Exception):
            raise found
        return found

    return boot


def test_a_device_that_is_not_there_or_not_open_to_this_user_has_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise PermissionError(13, "Permission denied")

    check = virtual.kvm(FakeMachine(), boots(AssertionError()))
    assert (check.status, check.remedy) == ("missing", "modprobe kvm")
    monkeypatch.setattr(virtual, "_api_version", refused)
    check = virtual.kvm(FakeMachine(KVM), boots(AssertionError()))
    assert (check.status, check.remedy) == ("missing", "adduser $USER kvm, then log in again")


def test_kvm_is_proved_by_a_guest_that_was_booted_in_it() -> None:
    for found, status, says, remedy in (
        (Acceleration("kvm"), "ok", "", ""),
        (Acceleration("tcg", DIES), "missing", f"{DIES}: guests run emulated", ""),
        (MissingImage("there is none"), "warn", "only booting a guest proves", "storlab image build"),
        (MissingTool("cpio is not installed"), "warn", "that can't be tried: cpio is not installed", ""),
    ):
        check = virtual.kvm(FakeMachine(KVM), boots(found))
        assert check.status == status and says in check.says and remedy in check.remedy


@pytest.mark.parametrize(("said", "status"), [("7.2.9 (Debian 1:7.2)", "warn"), ("10.0.2", "ok"), ("17.2.0", "ok")])
def test_emulation_of_qemu_7_2_is_not_relied_on(said: str, status: str) -> None:
    machine = FakeMachine(programs={"qemu-system-x86_64": f"QEMU emulator version {said}"})
    check = virtual.qemu(machine, "qemu-system-x86_64", "qemu-system-x86")
    assert check.status == status
    assert ("backports" in check.remedy) == (status == "warn")


def test_numa_and_saved_guests_are_told(tmp_path: Path) -> None:
    said = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1"
    assert virtual.numa(FakeMachine(programs={"numactl": said})).says == "NUMA: 2 nodes (0-1)"
    assert virtual.numa(FakeMachine()).remedy == "apt-get install numactl"
    assert virtual.saved_guests(tmp_path / "none").says.startswith("none yet")
    for name in ("one", "two", "one.123"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory").write_bytes(bytes(4096))
    for name in ("one", "two"):
        (tmp_path / name / "state").write_bytes(b"")
    assert virtual.saved_guests(tmp_path).says == f"2 in {tmp_path}, 0.0G"


def test_confinement_is_told_with_the_reason_where_it_could_be_more() -> None:
    whole = virtual.confinement(lambda: Confinement(5, sandbox=True))
    assert (whole.status, whole.says) == ("ok", "each guest's runs as a user of its own, in a sandbox")
    less = virtual.confinement(lambda: Confinement(5, sandbox=False, reason="no seccomp"))
    assert (less.status, less.says) == ("warn", "each guest's runs as a user of its own, without a sandbox: no seccomp")

    def absent() -> Confinement:
        raise MissingTool("there is none")

    assert virtual.confinement(absent).says == "not known: there is none"


def test_a_network_among_guests_is_tried_in_a_namespace_of_its_own() -> None:
    tun = {"/dev/net/tun": ""}
    machine = FakeMachine(tun, {"ip": "", "unshare": ""})
    assert virtual.network(machine).status == "ok"
    assert machine.ran[0][:3] == ["unshare", "--net", "ip"]
    assert virtual.network(FakeMachine({}, {"ip": ""})).remedy == "modprobe tun"
    assert virtual.network(FakeMachine(tun, {"ip": ""}, root=False)).says == "only root may make one"
    refused = FakeMachine(tun, {"ip": "", "unshare": "ioctl(TUNSETIFF): Operation not permitted!"})
    assert virtual.network(refused).status == "missing"


def test_virtiofsd_is_said_with_its_version_or_the_command_that_unpacks_one(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = ("/cache/ld.so", "--library-path", "/cache", "/cache/virtiofsd")
    found = {"rust": unpacked, "c": ("/usr/lib/qemu/virtiofsd",)}
    monkeypatch.setattr(virtual, "find_virtiofsd", found.get)
    programs = {"/cache/ld.so": "virtiofsd 1.13.2", "/usr/lib/qemu/virtiofsd": "virtiofsd version 7.2.22 (Debian …)"}
    says = virtual.virtiofsd(FakeMachine(programs=programs)).says
    assert says == "1.13.2 in Rust, unpacked by Storlab; 7.2.22 in C, /usr/lib/qemu/virtiofsd"
    monkeypatch.setattr(virtual, "find_virtiofsd", {}.get)
    check = virtual.virtiofsd(FakeMachine())
    assert (check.status, check.remedy) == ("missing", "storlab image virtiofsd")
