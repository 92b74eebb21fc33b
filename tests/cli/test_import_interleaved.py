"""``storlab import --interleaved``: set-ups that took turns are judged on their user's word, if files bear it out."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from study.program import call

TURNS = "abba" * 5
CSV = ("--factor-column", "fs", "--value", "iops:1/s:higher")
FIO = Path(__file__).parents[2] / "examples" / "imports" / "fio.json"


def table(folder: Path, order: str, *, faster: float = 1.0) -> str:
    """A row a trial, in the order in which they were measured."""
    rng = random.Random(7)
    rows = [f"{fs},{1000 * (faster if fs == 'b' else 1) * rng.gauss(1, 0.01):.2f}" for fs in order]
    path = folder / "t.csv"
    path.write_text("\n".join(["fs,iops", *rows, ""]))
    return str(path)


def fio(folder: Path, order: str, *, step: float = 60.0, depths: tuple[int, int] = (1, 1)) -> list[str]:
    """A file for each trial, measured every ``step`` seconds. ``depths``: the option iodepth of a and of b."""
    whole = FIO.read_text()
    document, _ = json.JSONDecoder().raw_decode(whole, whole.index("{"))
    files = []
    for at, level in enumerate(order):
        document["timestamp_ms"] += round(1000 * step)
        document["timestamp"] = document["timestamp_ms"] // 1000
        document["jobs"][0]["job options"]["iodepth"] = str(depths["ab".index(level)])
        path = folder / f"{level}-{order[:at].count(level)}.json"
        path.write_text(json.dumps(document))
        files.append(str(path))
    return files


def imported(run: Path, *words: str) -> dict[str, Any]:
    ran = call("import", *words, "--interleaved", "--out", str(run))
    assert ran.status == 0, ran.message
    found: dict[str, Any] = json.loads(call("report", str(run), "--format", "json").output)
    return found


def by_side(files: Sequence[str]) -> list[str]:
    return [*files, "--factor", f"side={','.join(Path(file).name[0] for file in files)}"]


def test_set_ups_that_took_turns_get_a_verdict_that_rests_on_their_users_word(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (answer,) = imported(run, "csv", table(tmp_path, TURNS, faster=1.2), *CSV)["comparisons"]
    assert (answer["a"], answer["b"], answer["rounds"], answer["verdict"]) == ("a", "b", 10, "worse")
    text = " ".join(call("report", str(run)).output.split())
    assert (
        "Verdicts rest on the word of whoever imported them that they were measured in turns on one machine, "
        "with none left out." in text
    )
    assert "Their order is that in which they were given" in text and "no verdicts" not in text
    ran = call("compare", str(run), "--by", "fs")
    assert ran.status == 0, ran.message
    assert "b is better than a" in ran.output
    assert "Verdicts rest on the word of whoever imported them" in " ".join(ran.output.split())


def test_what_is_the_same_is_equivalent_and_without_the_option_files_are_described(tmp_path: Path) -> None:
    (answer,) = imported(tmp_path / "run", "csv", table(tmp_path, TURNS), *CSV)["comparisons"]
    assert answer["verdict"] == "equivalent"
    run = tmp_path / "described"
    assert call("import", "csv", table(tmp_path, TURNS, faster=1.2), *CSV, "--out", str(run)).status == 0
    assert json.loads(call("report", str(run), "--format", "json").output)["comparisons"] == []


def test_times_in_files_of_fio_say_the_order_in_whatever_order_they_are_given(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = imported(run, "fio", *by_side(sorted(fio(tmp_path, "abbaabbaab"))))
    assert {answer["rounds"] for answer in found["comparisons"]} == {5}
    assert "Their order is that of the times that the files name" in " ".join(call("report", str(run)).output.split())


def test_options_tell_set_ups_apart_where_the_user_says_nothing_and_else_are_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = imported(run, "fio", *by_side(fio(tmp_path, "abbaabbaab", depths=(1, 8))))
    assert {(answer["factor"], answer["rounds"]) for answer in found["comparisons"]} == {("side", 5)}
    assert all(not answer["within"] for answer in found["comparisons"])
    text = " ".join(call("report", str(run)).output.split())
    assert "Set-ups differ in iodepth as well (side = a: 1; side = b: 8)." in text
    found = imported(tmp_path / "alone", "fio", *fio(tmp_path, "abbaabbaab", depths=(1, 8)))
    assert {(answer["factor"], answer["a"], answer["b"]) for answer in found["comparisons"]} == {("iodepth", "1", "8")}


def test_a_factor_with_one_level_is_not_what_is_compared(tmp_path: Path) -> None:
    words = ["--factor", "host=lab", *by_side(fio(tmp_path, "abbaabbaab"))]
    found = imported(tmp_path / "run", "fio", *words)
    assert {answer["factor"] for answer in found["comparisons"]} == {"side"}


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ("aaaaabbbbb", "by the times in the files, side = a comes again"),
        ("ababababab", "a always ran before b, in 5 of 5 rounds"),
        ("babababababababaab", "b mostly ran before a, in 8 of 9 rounds"),
    ],
)
def test_what_took_no_turns_by_its_own_times_is_refused_though_it_is_declared_and_given_as_if_it_had(
    order: str, says: str, tmp_path: Path
) -> None:
    files = fio(tmp_path, order)
    alternating = [file for pair in zip(sorted(files), sorted(files, reverse=True), strict=True) for file in pair]
    given = list(dict.fromkeys(alternating))
    ran = call("import", "fio", *by_side(given), "--interleaved", "--out", str(tmp_path / "run"))
    assert (ran.status, ran.output) == (2, "")
    assert says in ran.message and "Without --interleaved they are described, and not judged" in ran.message
    assert not (tmp_path / "run").exists()


def sysbench(folder: Path, order: str) -> list[str]:
    text = (FIO.parent / "sysbench-sync.txt").read_text()
    files = []
    for at, level in enumerate(order):
        path = folder / f"{level}-{order[:at].count(level)}.txt"
        path.write_text(f"{text}\n{at}\n")
        files.append(str(path))
    return files


@pytest.mark.parametrize(("dated", "apart", "status"), [(sorted, 60.0, 2), (sorted, 0.01, 0), (list, 60.0, 0)])
def test_dates_of_files_count_where_files_name_no_times_unless_they_are_those_of_copies(
    dated: Callable[[list[str]], list[str]], apart: float, status: int, tmp_path: Path
) -> None:
    given = sysbench(tmp_path, "abbaab")
    for at, file in enumerate(dated(given)):  # sorted they are aaabbb, and else as they are given
        os.utime(file, (1.79e9 + apart * at,) * 2)
    ran = call("import", "sysbench", *by_side(given), "--interleaved", "--out", str(tmp_path / "run"))
    assert ran.status == status, ran.message
    assert ("b-1.txt and was written before it, by their dates" in ran.message) == (status == 2)
    assert (tmp_path / "run").exists() == (status == 0)


@pytest.mark.parametrize("name", ["a-9.json", "b-9.json"])
def test_a_copy_of_a_file_is_no_repeat_of_whichever_set_up(name: str, tmp_path: Path) -> None:
    files = fio(tmp_path, "abba")
    copy = tmp_path / name
    copy.write_bytes(Path(files[0]).read_bytes())
    ran = call("import", "fio", *by_side([*files, str(copy)]), "--interleaved", "--out", str(tmp_path / "run"))
    assert ran.status == 2 and "are identical" in ran.message and "a copy is not a repeat" in ran.message


@pytest.mark.parametrize(
    ("levels", "step", "says"),
    [
        (["side=a,b,b,a"], 0.5, "they ran at once and took no turns"),
        ([], 60.0, "one set-up only"),
        (
            ["side=a,b,b,a", "disk=x,y,y,x"],
            60.0,
            "no two set-ups differ in side alone, so there is nothing to compare; they differ in side, disk",
        ),
    ],
)
def test_what_leaves_nothing_to_compare_is_refused(levels: list[str], step: float, says: str, tmp_path: Path) -> None:
    words = [word for each in levels for word in ("--factor", each)]
    files = fio(tmp_path, "abba", step=step)
    ran = call("import", "fio", *files, *words, "--interleaved", "--out", str(tmp_path / "run"))
    assert ran.status == 2, ran.output
    assert says in ran.message


def test_a_manifest_that_names_an_unknown_order_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    imported(run, "csv", table(tmp_path, TURNS), *CSV)
    manifest = run / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"turns": "given"', '"turns": "guessed"'))
    ran = call("report", str(run))
    assert ran.status == 2
    assert "manifest.json is damaged: imported.turns: invalid enum value 'guessed'" in ran.message
