"""A failure is told in one sentence with its cause and the log; what runs is ended when we are."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from laboratory import wait_until
from storlab.errors import ImageError, MissingTool
from storlab.images import commands


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("E: Unable to write - write (28: No space left on device)", "there is no space left on the file system of"),
        ("W: Failed to fetch http://x/Release  Temporary failure resolving 'x'", "the Debian mirror can't be reached"),
        ("E: The repository 'http://x bookworm Release' is not signed.", "install the package debian-archive-keyring"),
        ("E: newuidmap /proc/77/uid_map failed", "needs; run it as root"),
        (
            "I: doing\nE: setup failed: it broke\nI: removing",
            "mmdebstrap ended with status 25 (E: setup failed: it broke)",
        ),
        ("make: *** [all] Error 2", "mmdebstrap ended with status 25 (make: *** [all] Error 2)"),
        ("", "mmdebstrap ended with status 25"),
    ],
)
def test_the_cause_is_read_from_the_output_of_the_command_that_failed(output: str, cause: str, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "root.log"
    text = f"$ apt-get update\nNo space left on device\n$ mmdebstrap --mode=root\n{output}\n"
    assert cause in commands.cause(text, "mmdebstrap", 25, log)


def test_a_signal_is_named(tmp_path: Path) -> None:
    assert "was killed by signal 9" in commands.cause("$ zstd\n", "zstd", -9, tmp_path / "log")


def test_a_command_that_fails_names_its_log_which_has_what_it_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ImageError, match=rf"ended with status 3 \(broken\)\. All output: {log}"):
        commands.run([sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"], log)
    assert "broken" in log.read_text()


def test_a_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(MissingTool, match="needs no-such-thing; apt-get install no-such-thing"):
        commands.need(["sh", "no-such-thing"])


def test_lines_are_told_as_they_come(tmp_path: Path) -> None:
    seen: list[str] = []
    asyncio.run(commands.follow(["sh", "-c", "echo one; echo two >&2"], tmp_path / "log", seen.append))
    assert seen == ["one", "two"]


def test_a_cancelled_command_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    async def cancel() -> int:
        script = f"trap 'touch {tmp_path}/ended; exit' TERM; sleep 3600 & echo $!; wait"
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(commands.follow(["sh", "-c", script], tmp_path / "log", started.set_result))
        sleep = int(await started)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return sleep

    sleep = asyncio.run(cancel())
    assert (tmp_path / "ended").exists()
    assert wait_until(lambda: not Path(f"/proc/{sleep}").exists())
