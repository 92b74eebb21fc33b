"""What a study asks of its virtual machines is what they are; they are alike but for their identity."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from laboratory import Laboratory, ended, wait_until
from laboratory.guests import BEGUN, DISK, EXT4, WhenBegun, endings, guests, qemus
from laboratory.samples import sample
from storlab.base.errors import UserError
from storlab.images.image import find_image
from storlab.nodes.kinds.vm.emulator import Acceleration, Confinement, Emulator
from storlab.nodes.kinds.vm.kind import Boot
from storlab.nodes.needs import Needs

pytestmark = pytest.mark.needs("guests")

LOOK = sample(__file__, "cases/look-around.sh")


def seen(lab: Laboratory, node: str, trial: int = 1) -> dict[str, str]:
    """What a load that looks around found in a guest."""
    text = (lab.out / "trials" / f"{trial:04}" / node / "load" / "stdout").read_text()
    return dict(line.split("=", 1) for line in text.splitlines())


def test_restored_guests_start_together_and_have_identities_of_their_own(lab: Laboratory) -> None:
    lab.succeed(guests(LOOK, count="4", rounds=2), trials=2)
    names = [f"vm-{number}" for number in range(1, 5)]
    found = [seen(lab, name, trial) for trial in (1, 2) for name in names]
    assert [each["hostname"] for each in found] == names * 2
    assert len({each["boot_id"] for each in found}) == len({each["random"] for each in found}) == 8
    assert {each["network"] for each in found} == {"lo"}, "no study asked for a network"
    _, second = lab.records()  # the first may have to boot the guest that all are copies of
    assert {facts["boot"] for record in lab.records() for facts in record.guests.values()} == {"restored"}
    one_by_one = sum(facts["boot_seconds"] for facts in second.guests.values())
    assert second.phases["set up"] < one_by_one, "they start side by side"


WRITTEN = f"""dd if=/dev/urandom of=x bs=64k count=4 && dd if=x of=$target bs=64k oflag=direct \\
&& echo 3 > /proc/sys/vm/drop_caches && cmp -n 262144 x $target || exit
echo target=$target
echo disks=$(cat /sys/block/vd*/serial | grep -o 'storlab-disk[0-9]*')
echo "{BEGUN}" > /dev/console
sleep 1"""


def test_disks_memory_cpus_binding_and_arguments_arrive_cold_and_restored(lab: Laboratory) -> None:
    """Eighteen disks, for which one slot of eight ports, and two, are too few, hold what is written."""
    cpu = str(max(os.sched_getaffinity(0)))
    asked: dict[str, Any] = {
        "start": '"{disk.start}"',
        "memory": '"256M"',
        "cpus": "2",
        "pin": f'"{cpu}"',
        "numa": '"0"',
    }
    asked |= {"kernel_args": '"storlab_test=1"', "qemu_args": '["-smbios", "type=1,serial=from-the-study"]'}
    asked["stack"] = '[{ layer = "file", size = "16M" }, { layer = "{disk.kind}" }]'
    more = '[nodes.vm.extra.d]\ncount = 17\nstack = [{ layer = "file", size = "16M" }, { layer = "virtio-blk" }]\n'
    levels = """
[factors.disk]
blk  = { kind = "virtio-blk", start = "restored" }
scsi = { kind = "virtio-scsi", start = "cold" }
"""
    allowed: list[str] = []

    def look(_: object) -> None:
        status = Path(f"/proc/{qemus(lab)['vm']}/status").read_text().splitlines()
        allowed.extend(line.split()[1] for line in status if line.startswith("Cpus_allowed_list"))

    watching = WhenBegun(lab, ("vm",), look)
    lab.succeed(guests(f"{LOOK}{WRITTEN}", count="1", rest=more + levels, **asked), watching, trials=2)
    assert (allowed, watching.errors) == ([cpu] * 2, [])
    for record in lab.records():
        found, facts = seen(lab, "vm", record.trial), record.guests["vm"]
        restored = record.levels["disk"] == "blk"
        assert re.fullmatch("/dev/vd[c-t]" if restored else "/dev/sda", found["target"])
        on_virtio = range(18) if restored else range(1, 18)
        assert sorted(found["disks"].split()) == sorted(f"storlab-disk{number}" for number in on_virtio)
        assert found["cpus"] == "2" and 0.6 * 256 < int(found["memory"]) / 1024 < 256
        assert "storlab_test=1" in found["cmdline"].split() and found["serial"] == "from-the-study"
        assert facts["boot"] == ("restored" if restored else "cold")
        assert facts["pinning"] == {"cpus": cpu, "numa": "0"} and "from-the-study" in facts["command"]


def test_two_runs_do_not_disturb_each_other_and_only_their_storage_hosts_are_in_a_network(lab: Laboratory) -> None:
    storage = f'[nodes.storage]\nkind = "vm"\nmemory = "192M"\nstack = {DISK}\n'
    layers = f'[{{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount" }}, {DISK[1:]}'.replace("64M", "8M")
    text = guests(f"{LOOK}sleep 2", count="1", from_='"storage"', stack=layers, rest=storage)
    labs = [lab, Laboratory(lab.folder / "second")]
    processes = [each.start_run(text, "--quiet") for each in labs]
    assert wait_until(lambda: all(len(qemus(each)) == 2 for each in labs)), "both have their guests at the same time"
    namespaces = {path.name for path in Path("/run/netns").glob("storlab-*")}
    assert {f"storlab-{each.identity}" for each in labs} <= namespaces
    for each, process in zip(labs, processes, strict=True):
        ended(process).with_status(0)
        assert endings(each) == [("done", None)] and seen(each, "vm")["network"] == "lo"
        assert each.leftovers() == []


def test_a_shell_runs_what_is_piped_in_on_a_guest_and_leaves_nothing(lab: Laboratory) -> None:
    before = set(Path("/tmp").glob("storlab-shell-*"))
    script = lab.folder / "script"
    script.write_text("hostname\nls -d /dev/vdc\nexit 7\n")
    with script.open() as typed:
        result = lab.storlab("shell", lab.study(guests("true", stack=DISK)), "vm-2", stdin=typed)
    assert result.status == 7, str(result)
    assert result.stdout == "vm-2\n/dev/vdc\n" and lab.leftovers() == []
    assert set(Path("/tmp").glob("storlab-shell-*")) <= before


def test_a_program_that_the_image_lacks_is_the_studys_mistake_and_all_else_a_reason(lab: Laboratory) -> None:
    with pytest.raises(UserError, match=r'argv\[0\]: there is no program "no-such-program" on node vm: install it'):
        lab.execute(guests("true", count="1", stack=EXT4).replace('"sh", "-c"', '"no-such-program", "-c"'))
    assert lab.leftovers() == []
    boot = Boot(find_image(frozenset()), Path(), Acceleration("tcg"), Emulator("", ""), Confinement())
    (lack,) = boot.lacks(Needs(programs=("sh", "no-such-program")))
    assert re.fullmatch("the guest image debian-.* can't do this: no-such-program is not in it", lack)


def test_guests_that_want_more_memory_than_there_is_are_refused_where_it_is_written(lab: Laboratory) -> None:
    study = lab.study(guests("true", count="200", memory='"64G"'))
    line = study.read_text().splitlines().index('memory = "64G"') + 1
    result = lab.storlab("run", study, "--out", lab.out).with_status(2)
    said = f"{study}: line {line}: nodes.vm.memory: the virtual machines (vm: 200 × 64G, 1 CPU, and"
    assert result.stderr.startswith(said)
    assert "make them smaller or fewer" in result.stderr and not lab.out.exists()


def test_what_qemu_refuses_is_told_in_its_words(lab: Laboratory) -> None:
    asked: dict[str, Any] = {"count": "1", "start": '"{start}"', "cpu": '"nonsense"'}
    lab.execute(guests("true", rest='[factors.start]\nlevels = ["cold", "restored"]', **asked))
    why = "QEMU ended with status 1: qemu-system-x86_64: unable to find CPU model 'nonsense'"
    copies = f"no guest could be saved to make copies of: {why}"
    assert sorted(endings(lab)) == [("failed", f"node vm: {why}"), ("failed", f"node vm: {copies}")]
