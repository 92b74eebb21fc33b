"""Probe ``nvme``: what a health log says, and what a reader is warned of. A log of QEMU's is read in tests/run."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from storlab.base.errors import ParseError
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.nvme import NAME, NvmeProbe, parse_health
from storlab.probes.subject import Subject

from . import watched

HERE = Subject(group="here", disks=("nvme0n1p1",))


def log(**fields: int) -> bytes:
    """A health log with these numbers: ``a16=5`` is a 5 of the bytes from 16 on."""
    made = bytearray(512)
    made[1:3] = (273 + 40).to_bytes(2, "little")
    for name, value in fields.items():
        at = int(name[1:])
        size = 2 if at == 1 else 1 if at < 6 else 4
        made[at : at + size] = value.to_bytes(size, "little")
    return bytes(made)


def description(kelvins: int) -> bytes:
    return bytes(266) + kelvins.to_bytes(2, "little") + bytes(4096 - 268)


def record(raw: Path, **disks: tuple[bytes | None, bytes | None]) -> ProbeRecord:
    written = {
        disk: {
            "description": description(343).hex(),
            "before": before.hex() if before is not None else None,
            "after": after.hex() if after is not None else None,
        }
        for disk, (before, after) in disks.items()
    }
    (raw / NAME).write_bytes(orjson.dumps(written))
    return ProbeRecord(raw, Window(0, 1), HERE)


def test_what_happened_between_two_logs_is_counted_over_all_disks(tmp_path: Path) -> None:
    first = log(), log(a216=2, a220=1, a228=7, a160=3, a192=2, a5=4)
    second = log(a160=9), log(a160=9, a1=273 + 55)
    seen = NvmeProbe().parse(record(tmp_path, nvme0n1=first, nvme1n1=second))
    assert seen.totals() == {
        "throttle.events": 3, "throttle.time": 7, "hot.time": 120, "media.errors": 3, "temperature": 55,
        "endurance.used": 0.04,
    }  # fmt: skip
    assert seen.warnings == (
        "nvme: nvme0n1: throttled itself during the load (3 times, 7 s): its speed was not its own",
        "nvme: nvme0n1: 3 media errors during the load: the disk is failing",
    )


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (log(), ()),
        (log(a1=343), ("nvme: nvme0n1: 70 °C, where its vendor warns from 70 °C on",)),
        (log(a0=8), ("nvme: nvme0n1: its media are read-only",)),
        (None, ("nvme: the health log of nvme0n1 cannot be read: is nvme-cli installed there?",)),
    ],
)
def test_a_reader_is_warned_of_a_disk_that_is_not_well(
    after: bytes | None, said: tuple[str, ...], tmp_path: Path
) -> None:
    assert NvmeProbe().parse(record(tmp_path, nvme0n1=(log(), after))).warnings == said


@pytest.mark.parametrize("written", [b"{", b"[]", b'{"nvme0n1": {"before": "00", "after": "zz"}}'])
def test_what_holds_no_health_is_refused(written: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(written)
    with pytest.raises(ParseError, match="holds no health of disks"):
        NvmeProbe().parse(ProbeRecord(tmp_path, Window(0, 1), HERE))


def test_a_log_of_another_length_is_none() -> None:
    with pytest.raises(ValueError, match="512 bytes, not 511"):
        parse_health(bytes(511))


def test_storage_on_other_disks_is_said_to_be_on_no_nvme_disk(tmp_path: Path) -> None:
    seen = watched(NvmeProbe(), tmp_path, subject=Subject(group="here", disks=("no-such-disk",)))
    assert seen.warnings == ("nvme: the storage lies on no NVMe disk that is known",)
