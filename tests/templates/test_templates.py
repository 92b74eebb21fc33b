"""Studies from answers: whatever is answered, the study loads, and asks what was answered."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import UserError
from storlab.study.study import Study, parse_study
from storlab.templates.answers import EXTENTS, SUBJECTS, TARGETS, Answers
from storlab.templates.study import run_command, study_text

PATHS = {"file": "", "device": "/dev/disk/by-id/none", "directory": "/srv/data"}


def loaded(answers: Answers) -> Study:
    def no_files(name: str) -> str:
        raise AssertionError(f"it names the file {name}")

    return parse_study(study_text(answers).encode(), "study.toml", no_files)


EXTENT_ANSWERS = (*(word for word in EXTENTS if word != "TIME"), "±2.5 %", "90m")


def every(compare: str) -> Iterator[Answers]:
    """All combinations of answers with this one. How precise it is changes a table of its own, so these take turns."""
    subject = SUBJECTS[compare]
    guests = {int(subject.guests), 1, min(3, subject.most_guests)}
    extents = cycle(EXTENT_ANSWERS)
    for (target, path), load, count in product(PATHS.items(), subject.loads, guests):
        for wipe in {"", path if target == "device" else ""}:
            yield Answers(compare, target, path, wipe, "", load, next(extents), count)  # type: ignore[arg-type]
    yield from (Answers(compare, extent=extent) for extent in EXTENT_ANSWERS)


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
    assert set(TARGETS) == set(PATHS)
    assert "lost" in TARGETS["device"]
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
        ({"compare": "safety", "extent": "soon"}, "10m"),
        ({"compare": "safety", "extent": "3s"}, "a minute or more"),
        ({"compare": "safety", "extent": "0%"}, "write one of"),
    ],
)
def test_answers_that_do_not_fit_are_refused_with_what_would_be_right(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Answers(**given)


def test_extents_and_devices_are_what_the_study_and_its_command_say() -> None:
    assert loaded(Answers("safety", extent="5%")).model.repeat.until == 0.05
    assert loaded(Answers("safety", extent="look")).model.repeat.max == 2
    assert run_command(Answers("safety", extent="90m"), "x.toml") == "storlab run x.toml --budget 90"
    assert run_command(Answers("safety"), "x.toml") == "storlab run x.toml"

    def layers(load: str) -> list[str]:
        answers = Answers("nothing", "device", "/dev/sdz", load=load)
        return [link.layer.layer for chain in loaded(answers).cells[0].chains for link in chain.above]

    assert layers("random-read") == ["device"]
    assert layers("small-files") == ["device", "mkfs", "mount"]
