"""``storlab new``: studies from answers by options or on a terminal, presets, and files that stay as they are."""

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.devices import new_device, sh
from laboratory.studies import parsed
from storlab.base.errors import UserError
from storlab.new.answers import EXTENTS, SUBJECTS, TARGETS, Answers, study_text
from storlab.study.study import Study, load_study
from study.program import PROGRAM, Ran, call

ALL = ("--compare", "safety", "--on", "file", "--load", "stream-write", "--until", "look", "--guests", "0")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Answers that are typed, one after the other, on what passes for a terminal. Each is used up as it is read."""
    typed: list[str] = []

    class Keyboard(io.StringIO):
        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
            return f"{typed.pop(0)}\n" if typed else ""

    monkeypatch.setattr(sys, "stdin", Keyboard())
    monkeypatch.setattr("storlab.cli.new.on_a_terminal", lambda: True)
    yield typed
    assert typed == [], "it did not ask for all of it"


def written(file: str = "study.toml") -> str:
    return Path(file).read_text("utf-8")


def new(*words: str) -> Ran:
    ran = call("new", *words)
    assert ran.status == 0, ran.message
    return ran


def refused(*words: str) -> str:
    before = sorted(Path.cwd().rglob("*"))
    ran = call("new", *words)
    assert ran.status == 2, ran
    assert sorted(Path.cwd().rglob("*")) == before
    return ran.message


def test_with_all_options_it_asks_nothing_and_a_name_may_be_a_path_or_be_left_out() -> None:
    ran = new("study", *ALL)
    assert ran.output.splitlines()[-1] == "Next: `storlab run study.toml`"
    study = load_study(Path("study.toml"))
    assert study.model.title == "Buffered, direct or synchronous under one long write" and study.notes == ()
    Path("folder").mkdir()
    new("folder/log", *ALL, "--unchecked")
    new("other.study", *ALL, "--unchecked")
    new(*ALL, "--unchecked")
    assert all(map(Path.is_file, map(Path, ("folder/log.toml", "other.study", "safety.toml"))))


def test_what_is_missing_is_an_error_that_names_it_where_nobody_can_answer_and_yes_takes_defaults() -> None:
    message = refused("study", "--compare", "safety", "--guests", "0")
    assert "--on, --load, --until are missing" in message and "--yes" in message
    new("study", "--compare", "safety", "--yes", "--on", ".")
    assert f'path = "{Path.cwd()}"' in written()
    new("--yes", "--unchecked")
    assert Path("file-systems.toml" if os.geteuid() == 0 else "safety.toml").is_file()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--compare", "safe"], "unknown answer"),
        (["--compare", "safety", "--load", "log"], "random-write, stream-write"),
        (["--compare", "safety", "--on", "/nowhere"], "there is no directory /nowhere"),
        (["--compare", "safety", "--on", "/dev/nowhere"], "no block device /dev/nowhere"),
        (["--compare", "safety", "--on", "/dev/null"], "neither a block device nor a directory"),
        (["--compare", "safety", "--on", "device"], "give its path instead"),
        (["--compare", "safety", "--size", "1000T"], "has only"),
        (["--compare", "safety", "--on", ".", "--size", "4G"], "--size 4G: there is no file whose size it could be"),
        (["--compare", "safety", "--json"], "--list"),
        (["--from", "mail", "--compare", "safety"], "--compare"),
        (["--from", "nail"], "did you mean 'mail'"),
    ],
)
def test_an_answer_that_cannot_be_is_refused_with_status_2_and_nothing_is_written(
    words: list[str], reason: str
) -> None:
    assert reason in refused("study", *words, *([] if "--from" in words else ["--yes"]))


def test_a_study_for_another_machine_is_not_looked_at_here() -> None:
    ran = new("study", "--compare", "file-systems", "--on", "/dev/nvme7n1", "--yes", "--unchecked")
    assert "Next: `storlab plan study.toml --allow device=/dev/nvme7n1`" in ran.output
    assert 'path = "/dev/nvme7n1"' in written()


def test_a_size_is_that_of_a_file_or_refused() -> None:
    chosen = ("study", "--yes", "--unchecked", "--force", "--size", "4G", "--compare")
    for compare, on in (("file-systems", "/dev/sdzz"), ("shared-folders", "file"), ("databases", ".")):
        assert "no file whose size" in refused(*chosen, compare, "--on", on)
    for compare, on, guests in (("file-systems", ".", "0"), ("safety", ".", "1"), ("vm-disks", "/dev/sdzz", "1")):
        new(*chosen, compare, "--on", on, "--guests", guests)
        assert re.search(r'^disk *= "4G"', written(), re.MULTILINE)


def test_a_file_that_is_there_stays_as_it_is_unless_force_is_given() -> None:
    Path("study.toml").write_text("mine")
    assert "--force" in refused("study", *ALL)
    assert "--force" in refused("study", "--from", "mail")
    assert written() == "mine"
    new("study", *ALL, "--unchecked", "--force")
    assert "Buffered" in written()
    Path("folder").mkdir()
    assert "is a folder" in refused("./folder", "--from", "mail", "--force")
    assert "there is no folder" in refused("nowhere/x.toml", "--from", "mail")


def test_a_link_is_not_followed_to_another_file() -> None:
    Path("mine").write_text("mine")
    Path("study.toml").symlink_to("mine")
    assert "--force" in refused("study", *ALL)
    new("study", "--from", "mail", "--force")
    assert Path("mine").read_text() == "mine"
    assert not Path("study.toml").is_symlink()


def test_five_answers_on_a_terminal_make_a_study_each_checked_as_it_is_given(asked: list[str]) -> None:
    asked += ["20", "safety", "directory", "/nowhere", ".", "9", "2", "soon", "5%", "many", "0"]
    ran = new("study")
    for reason in ('unknown answer "20"', "no directory /nowhere", 'unknown answer "9"', '"soon"', "enter a number"):
        assert reason in " ".join(ran.message.split()), ran.message
    study = load_study(Path("study.toml"))
    assert study.model.repeat.until == 0.05
    assert f'path = "{Path.cwd()}"' in written() and 'rw         = "write"' in written()


def test_enter_takes_what_is_in_brackets_and_options_are_not_asked_for(asked: list[str]) -> None:
    asked += ["", "", "", ""]  # on what, how large, how precise, how many guests
    new("study", "--compare", "safety", "--load", "random-write")
    assert 'disk    = "1G"' in written()
    asked += ["", "", "", ""]
    new("again", "--compare", "safety", "--load", "random-write", "--size", "2G")
    assert 'disk    = "2G"' in written("again.toml")


def test_the_end_of_input_writes_nothing(asked: list[str]) -> None:
    asked += ["safety"]
    ran = call("new", "study")
    assert ran.status in (1, 130)
    assert not Path("study.toml").exists()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """A loop device with a file system on it."""
    with new_device(tmp_path / "disk.img", 600 * 1024**2) as made:
        sh("mkfs.ext4", "-q", made.path)
        yield made.path


@pytest.mark.needs("root")
def test_a_device_with_data_is_taken_only_when_it_is_named_twice(disk: str, asked: list[str]) -> None:
    chosen = ("--compare", "nothing", "--load", "random-read", "--until", "look")
    message = refused("study", *chosen, "--yes", "--on", disk)
    assert "carries a signature of ext4" in message and f"--wipe {disk}" in message
    asked += [disk, "/dev/other", disk, "0"]  # the device; its name once more, wrongly and rightly
    ran = new("study", *chosen)
    assert "carries a signature of ext4" in " ".join(ran.message.split())
    assert f'wipe = "{disk}"' in written()
    new("again", *chosen, "--yes", "--on", disk, "--wipe", disk)


def test_it_asks_on_a_real_terminal_and_says_what_comes_next(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    words = [
        str(PROGRAM),
        *["new", "study", "--compare", "safety", "--on", ".", "--load", "random-write", "--guests", "0"],
    ]
    with subprocess.Popen(words, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, text=True) as asking:
        os.close(terminal)
        os.write(controller, b"1\n")
        printed, _ = asking.communicate(timeout=120)
    os.close(controller)
    assert asking.returncode == 0
    assert printed.splitlines()[-1] == f"Next: `storlab run study.toml --allow write={Path.cwd()}`"
    assert 'until = "max"' in written()


PATHS = {"file": "", "device": "/dev/disk/by-id/none", "directory": "/srv/data"}


def loaded(answers: Answers) -> Study:
    return parsed(study_text(answers))


EXTENT_ANSWERS = (*(word for word in EXTENTS if word != "TIME"), "±2.5 %", "90m")


def every(compare: str) -> Iterator[Answers]:
    """All combinations of answers with this one. How precise it is changes a table of its own, so these take turns."""
    subject = SUBJECTS[compare]
    guests = {subject.guests[0], 1, min(3, subject.guests[1])}
    extents = cycle(EXTENT_ANSWERS)
    for (target, path), load, count in product(PATHS.items(), subject.loads, guests):
        for wipe in {"", path if target == "device" else ""}:
            yield Answers(compare, target, path, wipe, "", load, next(extents), count)  # type: ignore[arg-type]
    yield from (Answers(compare, until=extent) for extent in EXTENT_ANSWERS)


@pytest.mark.parametrize("compare", SUBJECTS)
def test_every_combination_of_answers_gives_a_study_that_loads_without_a_note(compare: str) -> None:
    for answers in every(compare):
        study = loaded(answers)
        assert study.notes == (), f"{answers}: {study.notes}"
        assert len(study.cells) > 1 or compare == "nothing"


@given(
    path=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=40).map(lambda name: f"/{name}"),
    target=st.sampled_from(["device", "directory"]),
    compare=st.sampled_from(list(SUBJECTS)),
)
def test_whatever_a_path_holds_the_study_means_that_very_path(path: str, target: str, compare: str) -> None:
    wipe = path if target == "device" else ""
    study = loaded(Answers(compare, target, path, wipe))  # type: ignore[arg-type]
    layers = [link.layer for cell in study.cells for chain in cell.chains for link in (*chain.below, *chain.above)]
    found = [layer for layer in layers if getattr(layer, "path", None) is not None]
    assert found and {layer.path for layer in found} == {path}  # type: ignore[attr-defined]
    assert all(getattr(layer, "wipe", path) == path for layer in found)


def test_defaults_fit_the_answers_and_all_targets_say_what_becomes_of_them() -> None:
    assert Answers("databases").load == "transactions"
    assert Answers("vm-disks").guests == 1
    assert Answers("file-systems").guests == 0
    assert set(TARGETS) == set(PATHS) and "lost" in TARGETS["device"]
    assert [asked.native for asked in loaded(Answers("vm-disks")).model.compare] == [True]
    assert "native" not in study_text(Answers("file-systems"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"compare": "file-system"}, "file-systems"),
        ({"compare": "databases", "load": "log"}, "transactions-read"),
        ({"compare": "vm-disks", "guests": 0}, "from 1 to 16"),
        ({"compare": "network-disks", "guests": 2}, "takes 1"),
        ({"compare": "safety", "target": "directory", "path": "data"}, "absolute path"),
        ({"compare": "safety", "target": "directory", "path": "/a\x1b[2J"}, "printable"),
        ({"compare": "safety", "target": "device", "path": "/dev/a", "wipe": "/dev/b"}, "once more"),
        ({"compare": "safety", "size": "1M"}, "512M"),
        ({"compare": "safety", "size": "big"}, "not a size"),
        ({"compare": "safety", "until": "soon"}, "10m"),
        ({"compare": "safety", "until": "3s"}, "a minute or more"),
        ({"compare": "safety", "until": "0%"}, "write one of"),
    ],
)
def test_answers_that_do_not_fit_are_refused_with_what_would_be_right(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Answers(**given)


def test_extents_and_devices_are_what_the_study_and_its_command_say() -> None:
    assert loaded(Answers("safety", until="5%")).model.repeat.until == 0.05
    assert loaded(Answers("safety", until="look")).model.repeat.max == 2
    assert Answers("safety", until="90m").run_command("x.toml") == "storlab run x.toml --budget 90"
    assert Answers("safety").run_command("x.toml") == "storlab run x.toml"

    def layers(load: str) -> list[str]:
        answers = Answers("nothing", "device", "/dev/sdz", load=load)
        return [link.layer.layer for chain in loaded(answers).cells[0].chains for link in chain.above]

    assert layers("random-read") == ["device"]
    assert layers("small-files") == ["device", "mkfs", "mount"]
