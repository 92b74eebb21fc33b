"""Readers: each reads its own samples right, live as imported; and one of a user's is refused unless it does."""

import shutil
from pathlib import Path

import pytest
from tools.readers_reference import reference

from attacks.odd_files import bounded
from storlab import open_run
from storlab.base.errors import ParseError
from storlab.tools.importer import Part, importer_of
from storlab.tools.kinds import reader_kinds, reader_names, signatures_in
from storlab.tools.readers.importer import check_samples
from storlab.tools.readers.numbers import seconds
from storlab.tools.readers.rules import Reader, built_in, made, reader_of
from storlab.tools.readers.runs import runs_of
from storlab.workloads.base import ELAPSED, OptionError, exit_bytes
from storlab.workloads.command import CommandWorkload
from study.program import call
from workloads import ended

from . import read, series
from .test_right import PASSED_ON

ROOT = Path(__file__).parents[2]
OWN = ROOT / "examples/readers/mytool.toml"
SAMPLES = [(name, number) for name in reader_names() for number in range(len(built_in(name).samples))]


def text_of(name: str, number: int = 0) -> bytes:
    return built_in(name).samples[number].text.encode()


def totals(parts: list[Part]) -> list[dict[str, float]]:
    return [part.measured.totals() for part in parts]


@pytest.mark.parametrize("name", reader_names())
def test_a_reader_has_samples_and_reads_them_right(name: str) -> None:
    assert built_in(name).samples
    check_samples(built_in(name), name)


@pytest.mark.parametrize(("name", "number"), SAMPLES)
def test_output_is_recognised_as_that_of_its_own_tool_also_behind_what_was_put_before_it(
    name: str, number: int
) -> None:
    text, wanted = text_of(name, number), [name] * bool(reader_kinds()[name].signatures)
    right = totals(read(name, text))
    for way in (lambda line: line, *PASSED_ON.values()):
        shown = b"\n".join(map(way, text.split(b"\n")))
        assert [signature.kind for signature in signatures_in(shown)] == wanted
        assert totals(read(name, shown)) == right


@pytest.mark.parametrize("name", reader_names())
def test_a_command_has_the_metrics_that_an_import_has_and_declares_them(name: str, tmp_path: Path) -> None:
    load = CommandWorkload.model_validate({"run": "'a tool' {target}", "reads": name})
    assert load.argv == ("a tool", "{target}")
    (tmp_path / "exit.json").write_bytes(exit_bytes(ended()))
    (tmp_path / built_in(name).source).write_bytes(text_of(name))
    found = load.parse(tmp_path).totals()
    runs = runs_of(built_in(name), text_of(name), "x")
    assert found == {**{got.name: got.value for run in runs for got in run.values}, **{k: found[k] for k in ELAPSED_}}
    declared = [spec for spec in load.declares() if spec.name not in ELAPSED_]
    for metric in found.keys() - ELAPSED_:
        assert any(spec.name == metric or (spec.word and spec.member(metric)) for spec in declared), metric


ELAPSED_ = {spec.name for spec in ELAPSED}


def test_what_is_said_of_readers_is_what_there_is() -> None:
    page = ROOT / "docs/reference/readers.md"
    assert page.read_text() == reference(), "again: python -m tools.readers_reference > docs/reference/readers.md"


def test_intervals_are_series_by_their_times_even_past_midnight() -> None:
    (part,) = read("rados-bench", text_of("rados-bench"))
    mib = 2.0**20
    assert series(part.measured, "bandwidth") == [(1.0, 176 * mib), (2.0, 200 * mib), (3.0, 220 * mib)]
    text = text_of("sar").replace(b"10:57:12", b"23:59:59").replace(b"10:57:13", b"00:00:00")
    (part,) = read("sar", text.replace(b"10:57:14", b"00:00:01"))
    assert series(part.measured, "vda.iops") == [(1.0, 36.0), (2.0, 41.0), (3.0, 41.0)]
    assert [seconds(text) for text in ("1:02:03 PM", "12:00:00 AM", "soon", "2026-02-31 10:00:00")] == [
        46923.0, 0.0, None, None,
    ]  # fmt: skip
    day = [seconds(text) for text in ("2026-11-27T00:00:01Z", "11/27/26 00:00:01", ["2026-11-27", "00:00:01"])]
    assert len(set(day)) == 1 and day[0] is not None and day[0] > 1e9


def test_output_that_is_cut_off_has_the_mean_of_its_intervals_and_says_so() -> None:
    text = text_of("rados-bench")
    (part,) = read("rados-bench", text[: text.index(b"Total time")])
    assert part.measured.totals() == {"bandwidth": pytest.approx((176 + 200 + 220) / 3 * 2**20)}
    assert part.measured.warnings == ("its end is missing, so this is the mean of what came before: bandwidth",)
    with pytest.raises(ParseError, match="x: has no figure of rados bench of Ceph: it is cut off"):
        read("rados-bench", text[:60])


def test_times_that_go_back_are_of_several_runs_and_names_stay_names() -> None:
    text = text_of("rados-bench")
    with pytest.raises(ParseError, match="metric bandwidth: its times go back: give each run a file of its own"):
        read("rados-bench", text.replace(b"    3      16", b"    1      16"))
    (part,) = read("sar", text_of("sar").replace(b"vda ", b"v" * 200 + b" "))
    assert not any(name.startswith("v") for name in part.measured.totals())
    many = b"".join(b"bench%d : 1.0 micros/op 5 ops/sec\n" % number for number in range(10_001))
    with bounded(20), pytest.raises(ParseError, match="there are more than 10000 metrics"):
        read("db-bench", many)


def test_what_was_not_measured_is_absent_and_never_0() -> None:
    (part,) = read("iostat", text_of("iostat"))
    found = part.measured.totals()
    assert found["vda.write.iops"] == 0 and "vda.write.latency.mean" not in found
    assert part.measured.warnings[0].startswith("the first of 3 reports is left out: it is of the time since")
    (part,) = read("crystaldiskmark", text_of("crystaldiskmark").replace(b"150.333 MB/s", b"  0.000 MB/s"))
    assert "rnd-4kib-q1t1.write.bandwidth" not in part.measured.totals()


def test_rows_of_settings_are_cells_and_runs_one_after_the_other_are_rounds() -> None:
    parts = read("iozone", text_of("iozone"))
    assert [part.levels for part in parts] == [
        {"file size": "65536k", "record size": "4k"},
        {"file size": "65536k", "record size": "128k"},
    ]
    assert parts[1].measured.totals()["random-write.bandwidth"] == 1_100_000 * 1024
    rounds = totals(read("dd", text_of("dd") + text_of("dd").replace(b"0.046674", b"0.093348")))
    assert rounds[0]["bandwidth"] == pytest.approx(2 * rounds[1]["bandwidth"])
    with pytest.raises(ParseError, match="metric rate: there are 2 numbers of it, so it is the output of several"):
        read("ycsb", text_of("ycsb") * 2)


@pytest.mark.parametrize("name", [name for name in reader_names() if built_in(name).each and name != "diskspd"])
def test_runs_that_were_appended_to_one_file_are_not_mixed(name: str) -> None:
    (one,) = read(name, text_of(name))
    both = read(name, text_of(name) * 2)
    assert totals(both) == totals([one, one]) and [part.traits for part in both] == [one.traits, one.traits]


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("iozone", b"1500000", b"15000  00", 'x:7: "00" stands under no column'),
        ("ioping", b"212.5 us /", b"212.5 weeks /", None),
        ("db-bench", b"1.500 micros", b"1.5.0 micros", '"1.5.0" is not a number'),
        ("diskspd", b"<Results>", b'<!DOCTYPE a [<!ENTITY b "c">]><Results>', "x: is not XML: it has a document type"),
        ("diskspd", b"</Results>", b"", "x: is not XML: "),
        ("iostat-json", b"]}]}}", b"]}]}", "x: is not JSON: "),
        ("iostat-json", b"81.00", b'"8,1"', 'has a comma that is not between thousands'),
        ("iostat", b"     10.00     40.00", b"     10,00     40.00", "LC_ALL=C"),
    ],
)  # fmt: skip
def test_damaged_output_is_refused_or_lacks_what_is_damaged(
    name: str, old: bytes, new: bytes, says: str | None
) -> None:
    text = text_of(name).replace(old, new)
    assert text != text_of(name)
    if says is None:
        assert "latency.mean" not in read(name, text)[0].measured.totals()
        return
    with pytest.raises(ParseError) as refused:
        read(name, text)
    assert says in str(refused.value)


def test_a_pattern_that_would_take_for_ever_elsewhere_takes_no_time() -> None:
    slow = made({"title": "a", "metrics": [{"name": "a", "regex": r"^(?:(?:a+)+)+(\d)$", "pick": "first"}]})
    with bounded(5), pytest.raises(ParseError):
        runs_of(slow, b"a" * 100_000, "x")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("better = ", "beter = ", "own.toml: line 8: metrics.0.beter: this key is unknown"),
        ('unit = "s"', 'unit = "s', "own.toml: no reader in TOML: "),
        ("(?P<operation>read|write): (?P<value>", "(?P<operation>read|write): (?P<valu>", "needs exactly one group"),
        ("{operation}.rate", "{operator}.rate", "{operator} is no group of its regex"),
        ("{operation}.rate", "{operation}", "a word in braces needs a word beside it"),
        ("{operation}.rate", "{operation} rate", "is not a valid name of a metric"),
        (r"^\[ *(?P<t>", r"^(?<=a)\[ *(?P<t>", "RE2 has no lookaround"),
        ("= 1000.0", "= 1001.0", "own.toml, sample 1: read.rate is 1000, and should be 1001"),
        ('threads = "4"', 'threads = "5"', 'own.toml, sample 1: threads is "4", not 5'),
        ("(?P<unit>ms|us)", r"(?P<unit>\w+)", ""),
        ("avg 250 us", "avg 250 xs", "is not found"),
    ],
)
def test_a_reader_of_a_users_is_refused_with_file_line_and_key(old: str, new: str, says: str, here: Path) -> None:
    text = OWN.read_text()
    assert old in text
    Path("own.toml").write_text(text.replace(old, new))
    Path("out.txt").write_text("threads: 2\nread: 500 ops/s, avg 2 ms\n")
    ran = call("import", "text", "out.txt", "--reader", "own.toml", "--out", "run")
    assert (ran.status == 2 and says in ran.message) if says and "is not found" not in says else ran.status in (0, 2)
    load = CommandWorkload.model_validate({"argv": ["a"], "reads": "own.toml"})
    if ran.status == 2:
        with pytest.raises(OptionError) as refused:
            load.resolve(lambda name: Path(name).read_text())
        assert says in str(refused.value)


def test_text_of_any_tool_is_imported_by_patterns_and_is_read_again_by_the_report(here: Path) -> None:
    for name, rate in (("a", 5000), ("b", 7000)):
        Path(f"{name}.txt").write_text(f"2026-11-27T10:00:00.1Z did {rate} IOPS\n2026-11-27T10:00:01.2Z p99 250\n")
    shutil.copy(OWN, "own.toml")
    values = ("--value", r"iops=(\d+) IOPS", "--value", r"latency.p99:us=p99 (\d+)")
    assert call("import", "text", "a.txt", "b.txt", *values, "--out", "run").status == 0
    shutil.rmtree("run/tables", ignore_errors=True)
    said = call("report", "run", "--format", "csv").output
    assert all(f"{name}.txt" in said or name in said for name in "ab") and "7000" in said and "0.00025" in said
    Path("own.txt").write_text("threads: 2\nread: 500 ops/s, avg 2 ms\n")
    assert call("import", "text", "own.txt", "--reader", "own.toml", "--out", "own").status == 0
    assert "0.002" in call("report", "own", "--format", "csv").output
    for words, says in (
        ((), "write what is to be read: --value METRIC=PATTERN"),
        (("--value", "iops"), "write METRIC=PATTERN"),
        (("--value", "iops:parsec=(a)"), '"parsec" is no unit'),
        (("--value", "iops=(a"), "can't be a regular expression here: missing )"),
        (("--value", "iops=a"), "needs exactly one group"),
        (("--value", r"iops=(\d+)", "--pick", "best"), "--pick"),
        (("--reader", "none.toml"), "cannot read none.toml: "),
    ):
        ran = call("import", "text", "a.txt", *words, "--out", "none")
        assert ran.status == 2 and says in ran.message and not Path("none").exists(), ran.message


STUDY = """
title = "Synchronous writes by dd"
stack = [{ layer = "directory" }]
probes = {}

[workload.writes]
command = { run = "dd if=/dev/zero of={target}/f bs=64K count=4 oflag=dsync", reads = "dd" }

[workload.own]
command = { run = "echo read: 1000 ops/s, avg 250 us", reads = "own.toml" }
"""


def test_a_study_runs_tools_and_reads_them_and_refuses_a_reader_that_cannot_be(here: Path) -> None:
    Path("study.toml").write_text(STUDY)
    Path("own.toml").write_text(OWN.read_text().replace("better =", "beter ="))
    refused = call("plan", "study.toml")
    assert refused.status == 2 and "own.toml: line 8: metrics.0.beter: this key is unknown" in refused.message
    assert "study.toml: line 10: workload.own.command.reads: " in refused.message
    shutil.copy(OWN, "own.toml")
    ran = call("run", "study.toml", "--rounds", "1", "--out", "run", "--quiet", "--shared")
    assert ran.status in (0, 1), ran.message
    found = {(row["source"], row["metric"]): row["value"] for row in open_run("run").metrics.iter_rows(named=True)}
    assert found["writes", "bytes"] == 4 * 65536 and 0 < found["writes", "time"] < found["writes", "elapsed"]
    assert found["writes", "bandwidth"] == pytest.approx(found["writes", "bytes"] / found["writes", "time"])
    assert (found["own", "read.rate"], found["own", "read.latency.mean"]) == (1000.0, 250e-6)


def test_what_is_not_recognised_is_told_the_ways_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    said = call("import", str(tmp_path / "a.txt")).message
    assert f"`storlab import text {tmp_path}/a.txt --value 'iops=([0-9.]+) IOPS'`" in said and "--reader FILE" in said
    with pytest.raises(ValueError, match='there is no reader "radosbench": write one of crystaldiskmark, db-bench'):
        CommandWorkload.model_validate({"argv": ["a"], "reads": "radosbench"})


def test_a_reader_is_an_importer_like_any_other() -> None:
    assert importer_of("dd").kind == "dd" and importer_of("ior").kind == "ior"
    assert isinstance(reader_of(OWN.read_text(), "own"), Reader)
