"""``storlab noise``, for real and short; what ``plan`` makes of it; and how it ends when it is interrupted."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, interrupt, kill, nothing_known, wait_for, wait_until
from laboratory.samples import sample
from storlab.run.noise import FEWEST, MachineNoise, noise_file, save, saved
from study.program import call


@pytest.fixture(autouse=True)
def state(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))
    return here / "state"


def kept(**changed: object) -> MachineNoise:
    values = (1.0, 1.1) * 10
    given = {"overhead": 2.0, "values": values} | changed
    return MachineNoise("m", "2026-01-02T03:04:05+00:00", "the built-in load", "A", "bandwidth", 2.5, **given)  # type: ignore[arg-type]


def test_the_built_in_load_tells_what_can_be_seen_and_keeps_it(tmp_path: Path, state: Path) -> None:
    ran = call("noise", "--for", "1s", "--in", str(tmp_path), "--json")
    assert ran.status == 0, ran.message
    told = json.loads(ran.output)
    assert len(told["values"]) == FEWEST and told["seconds"] > told["overhead"] > 0
    assert told["noise"][0]["pairs"] == FEWEST // 2 and set(told["rounds"]) >= {"0.01", "0.1"}
    assert Path(told["file"]).is_relative_to(state)
    again = saved()
    assert again is not None and list(again.values) == told["values"]
    assert [path.name for path in tmp_path.iterdir()] == ["state"], "nothing is left where the load was"


def test_plan_uses_what_was_measured() -> None:
    before = json.loads(call("plan", "quick-directory", "--json").output)["seconds_per_round"]
    save(kept(values=(1.0, 1.2, 1.2, 1.0) * 5))
    after = call("plan", "quick-directory", "--json")
    assert json.loads(after.output)["seconds_per_round"] == pytest.approx(before + 6 * 1.5)
    said = " ".join(call("plan", "quick-directory").output.split())
    assert "vary by 19 % as those of the built-in load did when `storlab noise` ran (2026-01-02)" in said


@pytest.mark.parametrize("text", ["", "{}", "[1", "null", '{"machine": 3}'])
def test_what_is_kept_and_can_not_be_read_is_as_if_it_were_not_there(text: str) -> None:
    noise_file().parent.mkdir(parents=True)
    noise_file().write_text(text)
    assert saved() is None
    assert call("plan", "quick-directory").status == 0


def test_where_no_noise_is_known_the_plan_names_its_assumption() -> None:
    for values in (None, (0.0, 1.0)):
        if values is not None:
            save(kept(values=values))
        said = " ".join(call("plan", "quick-directory").output.split())
        assert "vary by 10 % (an assumption: `storlab noise` measures this machine)" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--for", "soon"), "--for soon"),
        (("--in", "no/such/place"), "there is no such directory"),
        (("no-such-study",), "unknown study 'no-such-study'"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], message: str) -> None:
    ran = call("noise", *words)
    assert ran.status == 2 and message in ran.message
    assert not noise_file().exists()


@pytest.mark.parametrize("layer", ["directory", "device"])
def test_a_study_that_names_its_place_is_not_moved_to_another_in_silence(layer: str, tmp_path: Path) -> None:
    Path("own.toml").write_text(
        f'title = "own"\nstack = [{{ layer = "{layer}", path = "/srv" }}]\n'
        '[workload.load]\ncommand = { argv = ["false"] }\n'
    )
    ran = call("noise", "own.toml", "--for", "1s", "--quiet", "--in", str(tmp_path))
    assert ran.status == 2 and f"--in {tmp_path}: this study names /srv itself" in ran.message
    assert f"leave --in out, or change the path of its layer {layer}" in ran.message


def test_a_load_that_fails_says_why_and_keeps_nothing() -> None:
    Path("bad.toml").write_text(
        'title = "bad"\nstack = [{ layer = "directory" }]\n[workload.load]\ncommand = { argv = ["false"] }\n'
    )
    ran = call("noise", "bad.toml", "--for", "1s", "--quiet", "--in", ".")
    assert ran.status == 2, ran.message
    assert "the noise can't be measured" in ran.message
    assert not noise_file().exists()


SLEEP = sample(__file__, "cases/noise.toml")


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


def files(lab: Laboratory) -> list[Path]:
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
    assert len(told["values"]) >= FEWEST and told["noise"]
    assert files(lab) == [Path(told["file"])] and nothing_is_left(lab)


@pytest.mark.parametrize(
    ("seconds", "signals", "said"),
    [
        ("0.5", [signal.SIGINT], "storlab: interrupted too soon to say anything"),
        ("3600", [signal.SIGINT, signal.SIGINT], "Stopping at once"),
        ("3600", [signal.SIGTERM], "Stopping at once"),
    ],
)
def test_ctrl_c_too_soon_says_so_and_twice_or_as_sigterm_stops_the_trial_and_nothing_is_kept(
    lab: Laboratory, seconds: str, signals: list[signal.Signals], said: str
) -> None:
    process = measuring(lab, seconds, 0)
    interrupt(process, signals)
    result = ended(process)
    assert (result.status, result.stdout) == (130, ""), str(result)
    assert said in result.stderr and "Traceback" not in result.stderr
    assert files(lab) == [] and nothing_is_left(lab)


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
    assert files(lab) == [] and nothing_is_left(lab)
    assert nothing_known(lab.storlab("clean", "--yes").stdout, lab.folder)
