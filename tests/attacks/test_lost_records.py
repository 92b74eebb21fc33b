"""The file system of a run's folder dies while it runs: all is torn down even so, and what is not recorded is said."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from laboratory import Laboratory, ended, needs_root, wait_for
from laboratory.devices import Device, sh

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)
_WITHOUT_LOG = 2
STUDY = """
primary = "elapsed"
repeat = { until = "max", min = 2, max = 2 }
stack = [
    { layer = "file", size = "32M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
]
[probes]
[workload.load]
"""


@needs_root
def test_a_run_whose_folder_dies_tears_everything_down_and_says_what_is_not_recorded(
    lab: Laboratory, device: Device
) -> None:
    mounted = lab.folder / "records"
    mounted.mkdir()
    sh("mkfs.ext4", "-q", device.path)
    sh("mount", device.path, str(mounted))
    try:
        wait = f"touch {lab.folder}/ready; until [ -e {lab.folder}/go ]; do sleep 0.05; done"
        study = lab.study(f'{STUDY}command = {{ argv = ["sh", "-c", "{wait}"] }}')
        process = lab.start("run", study, "--out", mounted / "out", "--seed", "1", "--quiet", "--unconfined")
        wait_for(process, lambda: (lab.folder / "ready").exists())
        run = next(path.name for path in lab.scratch.iterdir())
        folder = os.open(mounted, os.O_RDONLY)
        fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
        os.close(folder)
        (lab.folder / "go").touch()
        result = ended(process)
        assert result.status == 1, str(result)
        assert "Traceback" not in result.stderr
        assert "internal error" not in result.stderr
        assert str(mounted / "out") in result.stderr
        assert "everything is torn down" in result.stderr
        assert list(lab.scratch.iterdir()) == []
        assert run not in Path("/proc/self/mountinfo").read_text()
        assert run not in sh("losetup", "--list", "--output", "BACK-FILE")
        assert not lab.processes()
    finally:
        sh("umount", str(mounted))
