"""The workload command: its metrics, its failures, and what it runs; and what no workload can be asked for."""

import asyncio
import contextlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laboratory.samples import sample
from storlab.base.errors import CommandFailed, ParseError, TimedOut, TrialError
from storlab.layers.resources import Dir, Disk, Export, Resource, Server, Swap
from storlab.measurements import Measurements
from storlab.nodes.kinds.local import local_node
from storlab.nodes.process import ExitRecord
from storlab.registry import workload_types
from storlab.workloads.base import RunContext
from storlab.workloads.command import CommandWorkload, MetricRule
from workloads import ended, left

CASES = json.loads(sample(__file__, "cases/command.json"))


def rule(**fields: Any) -> MetricRule:
    return MetricRule.model_validate({"name": "x", **fields})


def number(text: str, **fields: Any) -> float:
    return rule(**fields).read(text, "stdout")


NUMBERS = st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1, max_size=8)
PICKS: dict[str, Any] = {
    "first": lambda numbers: numbers[0], "last": lambda numbers: numbers[-1], "sum": sum, "min": min, "max": max,
    "mean": lambda numbers: sum(numbers) / len(numbers),
}  # fmt: skip


@given(NUMBERS, st.sampled_from(sorted(PICKS)), st.sampled_from([1.0, 1e-3, 1024.0, -1.0]))
def test_a_regex_and_a_path_pick_the_same_number(numbers: list[float], pick: str, scale: float) -> None:
    lines = "\n".join(f"speed: {value!r} MB/s" for value in numbers)
    document = json.dumps({"runs": [{"speed": value} for value in numbers]})
    expected = pytest.approx(PICKS[pick](numbers) * scale, rel=1e-9, abs=1e-6)
    assert number(lines, regex=r"^speed: (\S+) MB/s$", pick=pick, scale=scale) == expected
    assert number(document, json="runs[].speed", pick=pick, scale=scale) == expected


COPIED: dict[str, Any] = {"name": "copied", "regex": r"(\d+) bytes", "quantity": "bytes written"}


@pytest.mark.parametrize(
    ("expect", "elapsed", "said"),
    [
        ({"bytes": "64M"}, 1.0, "cp moved 4096 bytes of the 67108864 that are expected of it"),
        ({"bytes": "4k"}, 1.0, ""),
        ({"min_time": "2s"}, 1.0, "cp ran for 1 s of the 2 s that are expected of it"),
        ({"min_time": "1s"}, 1.0, ""),
        ({}, 0.002, ""),
    ],
)
def test_a_command_that_did_less_than_is_expected_has_failed_and_one_of_no_time_is_named(
    tmp_path: Path, expect: dict[str, str], elapsed: float, said: str
) -> None:
    load = CommandWorkload.model_validate({"argv": ["cp"], "metrics": [COPIED], "expect": expect})
    left(tmp_path, replace(ended(argv=("cp",)), elapsed=elapsed), stdout="4096 bytes\n")
    with pytest.raises(TrialError, match=said) if said else contextlib.nullcontext():
        assert load.parse(tmp_path).warnings == ()
        timed = CommandWorkload(argv=("cp",)).parse(tmp_path)
        assert bool(timed.warnings) == (elapsed < 0.01)


def test_numbers_are_read_as_programs_print_them() -> None:
    for text, regex, value in (
        ("1,234.5 ops", r"([\d,.]+) ops", 1234.5),
        ("a\nb 5\n", r"^b (\d+)$", 5),
        ("1.5e3", r"(.+)", 1500),
        ("-7", r"(-?\d+)", -7),
        ("time 0:05", r"time (?:\d+):(\d+)", 5),
    ):
        assert number(text, regex=regex) == value


@pytest.mark.parametrize(("text", "fields", "says"), CASES["output without the number"])
def test_output_without_the_number_is_an_error_that_names_metric_and_file(
    text: str, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(ParseError) as raised:
        number(text, **fields)
    assert str(raised.value).startswith("stdout: metric x") and says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"regex": "("}, "missing )"), ({"regex": "x"}, "exactly one group"), ({"regex": "(a)(b)"}, "exactly one"),
        ({"regex": "(a{9999999999999})"}, "at most 1000 times"), ({"regex": "(a)" + "b?" * 5000}, "4096 characters"),
        ({"regex": "(?<=x)(a)"}, "no lookaround: write what stands"), ({"regex": r"(a)\1"}, "no back references"),
        ({"regex": r"(a)\Z"}, r"write \\z"), ({"regex": "(a++)"}, "needs none"), ({"regex": "(?x)(a)"}, "of flags"),
        ({"json": "a[["}, "can't be a JMESPath here"), ({"json": "!" * 4000 + "a"}, "nested too deeply"),
        ({"json": "|".join(["[@,@][]"] * 40)}, "more than 1000 times"), ({"json": "join('', a)"}, "no number"),
    ],
)  # fmt: skip
def test_a_pattern_that_can_not_serve_is_refused_with_what_to_write_instead(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says.replace("(", r"\(").replace(")", r"\)")):
        rule(**fields)


def test_patterns_of_strangers_end_at_once_or_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for regex in ("((?:a+)+)$", "((?:a|a)*)!", "((?:a*)*)!", "((?:a|aa)+)$"):  # of which re tries 2^n ways
        with pytest.raises(ParseError, match="matches nothing"):
            number("a" * 100_000 + "?", regex=regex)
    monkeypatch.setattr("storlab.base.patterns._MOST_SECONDS", 0.05)
    with pytest.raises(ParseError, match="begin it with words"):  # n matches, and for each the rest of the text
        number("1" * 400_000, regex="(?:.*[^0-9]|([0-9]))", pick="sum")
    monkeypatch.setattr("storlab.base.patterns.MOST_TEXT", 1000)
    with pytest.raises(ParseError, match="let the program print less"):
        number("1" * 1001, regex="(1)")
    made = rule(json="a.b", **{"from": "result.json"})
    assert (made.json_path, made.source) == ("a.b", "result.json")


def record(**changes: Any) -> ExitRecord:
    return replace(ended(argv=("bench", "-x")), **{"elapsed": 2.5, "cpu_user": 1.0, "max_rss": 4096, **changes})


def parsed(folder: Path, workload: CommandWorkload, stdout: str = "", stderr: str = "", **changes: Any) -> Measurements:
    return workload.parse(left(folder, record(**changes), stdout=stdout, stderr=stderr))


def command(*metrics: dict[str, Any], **fields: Any) -> CommandWorkload:
    return CommandWorkload.model_validate({"argv": ["bench"], "metrics": list(metrics), **fields})


def test_metrics_come_with_unit_and_direction_beside_what_every_command_has(tmp_path: Path) -> None:
    rules: list[dict[str, Any]] = [
        {"name": "rate", "regex": r"rate (\S+)", "unit": "B/s", "scale": 2**20, "better": "higher"},
        {"name": "p99", "json": "latency.p99", "from": "out.json", "unit": "s", "better": "lower", "across": "max"},
        {"name": "warned", "regex": r"warnings: (\d+)", "from": "stderr"},
    ]
    (tmp_path / "out.json").write_text('{"latency": {"p99": 0.25}}')
    rows = parsed(tmp_path, command(*rules), "rate 3\n", "warnings: 2\n").metrics.rows(named=True)
    found = {row["metric"]: (row["value"], row["unit"], row["better"], row["across"]) for row in rows}
    assert found == {
        "elapsed": (2.5, "s", "lower", "max"), "cpu.user.time": (1.0, "s", "lower", "sum"),
        "cpu.system.time": (0.25, "s", "lower", "sum"), "max_rss": (4096, "B", "lower", "max"),
        "rate": (3 * 2**20, "B/s", "higher", "sum"), "p99": (0.25, "s", "lower", "max"),
        "warned": (2, "1", "neither", "sum"),
    }  # fmt: skip


def test_a_file_that_the_command_did_not_leave_is_named_and_output_that_is_not_text_is_read_all_the_same(
    tmp_path: Path,
) -> None:
    with pytest.raises(TrialError, match=r"metric x: the command left no file out\.json"):
        parsed(tmp_path, command({"name": "x", "json": "a", "from": "out.json"}))
    workload = command({"name": "x", "regex": r"x=(\d+)"})
    parsed(tmp_path, workload, "x=1")
    (tmp_path / "stdout").write_bytes(b"\xff\xfe x=7 \x00")
    assert workload.parse(tmp_path).metrics.filter(metric="x")["value"].to_list() == [7]


def test_a_command_that_failed_has_no_metrics(tmp_path: Path) -> None:
    for changes, error, says in (
        ({"code": 3}, CommandFailed, "bench ended with status 3: it is broken"),
        ({"code": None, "signal": "KILL"}, CommandFailed, "bench was killed by KILL: it is broken"),
        ({"code": None, "timed_out": True}, TimedOut, "bench was stopped at the time-out: it is broken"),
    ):
        with pytest.raises(error, match=says) as raised:
            parsed(tmp_path, command({"name": "x", "regex": r"x=(\d+)"}), "x=5\n", "first\nit is broken\n", **changes)
        assert "first" in raised.value.detail


def test_a_damaged_record_of_its_end_is_an_error(tmp_path: Path) -> None:
    sound = json.dumps(asdict(record()))
    wrong = [sound.replace("2.5", '"x"'), sound.replace('["bench", "-x"]', "[]"), sound.replace("2.5", "1e300")]
    broken = [sound.replace("2.5", '"x"') + "}", sound.replace("2.5", '"x"').replace("4096", "[" * 9999)]
    for text in ("", "{}", "[]", '{"argv": 5}', "null", *wrong, *broken):
        (tmp_path / "exit.json").write_text(text)
        with pytest.raises(ParseError, match=r"exit.json"):
            command().parse(tmp_path)


def test_its_program_is_what_it_needs_and_it_takes_what_has_all_that_its_words_name() -> None:
    assert command().needs().programs == ("bench",)
    assert command(argv=["{target}/x"], prepare=["tar", "x"]).needs().programs == ("tar",)
    assert command().duration(1) is None
    assert (command(expected="1m").duration(2), set(command().takes())) == (62, {Dir, Disk, Server, Export, Swap})
    assert set(command(argv=["x", "{target}", "{node}", "{{port}}"]).takes()) == {Dir, Disk, Server, Export, Swap}
    assert set(command(env={"PORT": "{port}"}).takes()) == {Server, Export}
    assert command(prepare=["x", "{database}"]).takes() == (Server,)


def test_places_words_are_filled_in_once_and_one_that_this_server_lacks_is_named() -> None:
    words = {"target": "/mnt/{round}", "round": "3", "trial": "9"}
    place = RunContext(None, Dir("host", "/mnt"), "/folder", "load", 0.0, 7, words)  # type: ignore[arg-type]
    assert place.fill("{target} {round}{trial} {{round}} {seed} {other} {} ${round}") == (
        "/mnt/{round} 39 {round} {seed} {other} {} $3"
    )
    server = Server("host", "redis", socket="/s")
    place = RunContext(None, server, "/folder", "load", 0.0, 7, server.words())  # type: ignore[arg-type]
    with pytest.raises(TrialError, match=r'"--port=\{port\}": this Server has no \{port\}, but \{target\}, \{socket\}'):
        place.fill("--port={port}")


UNIX = {"type": "unix", "path": "/s/socket"}
INET = {"type": "inet", "host": "10.0.0.2", "port": "10809"}
WORDS = [
    (Dir("host", "/mnt"), "{target}", "/mnt"),
    (Disk("host", "/dev/loop0", 1, True), "{target}", "/dev/loop0"),
    (Export("host", UNIX, "vm", 1), "{target} {socket} {export}", "nbd+unix:///vm?socket=/s/socket /s/socket vm"),
    (Export("host", INET, "vm", 1), "{target} {host} {port} {export}", "nbd://10.0.0.2:10809/vm 10.0.0.2 10809 vm"),
    (Server("host", "redis", socket="/s"), "{target} {socket}", "/s /s"),
    (Server("host", "mysql", "10.0.0.3", 3306, "/s", "x"), "{target} {port} {database}", "10.0.0.3:3306 3306 x"),
]


@pytest.mark.parametrize(("target", "text", "filled"), WORDS)
def test_every_kind_of_target_has_its_words(target: Resource, text: str, filled: str) -> None:
    place = RunContext(None, target, "/folder", "load", 0.0, 7, target.words())  # type: ignore[arg-type]
    assert place.fill(text) == filled and set(target.words()) <= target.has_words


def test_a_command_runs_where_it_is_to_run(tmp_path: Path) -> None:
    target, folder = tmp_path / "target", tmp_path / "folder"
    target.mkdir()
    folder.mkdir()
    workload = command(
        {"name": "files", "regex": r"(\d+)"},
        {"name": "answer", "json": "[0].a", "from": "out.json"},
        argv=["sh", "-c", 'ls "$WHERE" | wc -l; pwd >&2; echo \'[{"a": 42}]\' > out.json', "{target}"],
        env={"WHERE": "{target}"},
        prepare=["touch", "{target}/one", "{target}/two"],
    )

    async def measured() -> Measurements:
        async with local_node("host") as node:
            place = RunContext(node, Dir("host", str(target)), str(folder), "load", 0.05, 7, {"target": str(target)})
            await workload.prepare(place)
            launch = await workload.launch(place)
            ran = await node.run(launch.argv, cwd=launch.cwd, env=launch.env, check=False)
            return workload.parse(left(folder, ran, stdout=ran.stdout, stderr=ran.stderr))

    metrics = asyncio.run(measured()).metrics
    found = dict(zip(metrics["metric"], metrics["value"], strict=True))
    assert (found["files"], found["answer"]) == (2, 42) and found["elapsed"] > 0
    assert (folder / "stderr").read_text() == f"{folder}\n"


REFUSED = json.loads(sample(__file__, "cases/refused.json"))
"""Kind, keys, and what the refusal says."""


@pytest.mark.parametrize(("kind", "keys", "reason"), REFUSED, ids=str)
def test_what_a_workload_can_not_be_asked_for_is_refused_with_its_reason(
    kind: str, keys: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        workload_types()[kind].model_validate(keys)
    assert reason in str(refused.value)
