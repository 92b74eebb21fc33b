"""``storlab noise`` is interrupted or killed: it says what it still can, and leaves nothing standing."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, interrupt, kill, wait_for, wait_until
from storlab.run.noise import FEWEST

SLEEP = """
primary = "elapsed"
stack = [{ layer = "directory" }]
[trial]
settle = { sync = false, drop_caches = false }
[probes]
[workload.load]
command = { argv = ["sleep", "SECONDS"] }
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    """Storlab in an empty folder, where its temporary files lie too."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with contextlib.closing(Laboratory(tmp_path, {"TMPDIR": str(temporary)})) as made:
        yield made


def measuring(lab: Laboratory, seconds: str, trials: int) -> subprocess.Popen[bytes]:
    """``storlab noise`` while a trial runs, when so many have ended."""
    study = lab.study(SLEEP.replace("SECONDS", seconds))
    process = lab.start("noise", study, "--for", "1h", "--json")
    wait_for(process, lambda: ended_trials(lab) >= trials and lab.sleeps())
    return process


def ended_trials(lab: Laboratory) -> int:
    return len(list(lab.folder.glob("tmp/storlab-noise-*/*/trials/*/trial.json")))


def kept(lab: Laboratory) -> list[Path]:
    return list(lab.folder.glob("state/storlab/noise/*"))


def nothing_is_left(lab: Laboratory) -> bool:
    standing = [*lab.processes(), *lab.links, *lab.scratch.iterdir(), *(lab.folder / "tmp").iterdir()]
    assert standing == [], standing
    return True


def test_ctrl_c_says_what_the_trials_until_then_tell_and_keeps_it(lab: Laboratory) -> None:
    process = measuring(lab, "0.02", FEWEST)
    kill(process, signal.SIGINT)
    result = ended(process)
    assert result.status == 130, str(result)
    assert "the running trial is finished first" in result.stderr
    told = json.loads(result.stdout)
    assert len(told["values"]) >= FEWEST
    assert told["noise"]
    assert kept(lab) == [Path(told["file"])]
    assert nothing_is_left(lab)


def test_ctrl_c_too_soon_to_say_anything_says_so_and_keeps_nothing(lab: Laboratory) -> None:
    process = measuring(lab, "0.5", 0)
    kill(process, signal.SIGINT)
    result = ended(process)
    assert (result.status, result.stdout) == (130, ""), str(result)
    assert "storlab: interrupted too soon to say anything" in result.stderr
    assert "Traceback" not in result.stderr
    assert kept(lab) == []
    assert nothing_is_left(lab)


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)])
def test_ctrl_c_twice_and_sigterm_stop_the_trial_at_once(lab: Laboratory, signals: tuple[signal.Signals, ...]) -> None:
    process = measuring(lab, "3600", 0)
    interrupt(process, signals)
    result = ended(process)
    assert (result.status, result.stdout) == (130, ""), str(result)
    assert "Stopping at once" in result.stderr
    assert "Traceback" not in result.stderr
    assert kept(lab) == []
    assert nothing_is_left(lab)


def test_what_a_kill_leaves_clean_takes_down_and_removes(lab: Laboratory) -> None:
    process = measuring(lab, "3600", 0)
    early = lab.storlab("clean", "--yes")
    assert "is in use by process" in early.stdout, str(early)
    assert process.poll() is None, "what goes on is left alone"
    kill(process)
    assert ended(process).status == -9
    assert wait_until(lambda: not lab.processes(), 10.0), "the agent ends by itself, with all that it started"
    (folder,) = (lab.folder / "tmp").iterdir()
    cleaned = lab.storlab("clean", "--yes")
    assert cleaned.status == 0, str(cleaned)
    assert f"{folder}: removed, because the process that worked in it is gone" in cleaned.stdout
    assert kept(lab) == []
    assert nothing_is_left(lab)
    assert "No run is known" in lab.storlab("clean", "--yes").stdout
