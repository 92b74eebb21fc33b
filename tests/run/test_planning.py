"""What a plan knows before anything runs: its comparisons, time and room, and the order of its rounds."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations, groupby, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import storlab
from laboratory import Laboratory
from laboratory.guests import guests
from laboratory.samples import sample
from laboratory.studies import parsed
from storlab.analysis.foresight import ASSUMED
from storlab.base.errors import RecordsError, StudyError
from storlab.records.manifest import Aim, Horizon
from storlab.report.language.say import say
from storlab.run.limits import Limits
from storlab.run.noise import BUILT_IN_TITLE, MachineNoise
from storlab.run.planning.design import bet_of, design_of, rule_of
from storlab.run.planning.estimates import ASSUMED_RATE, Speed, speed_of, typical_noise
from storlab.run.planning.horizon import aiming_at, horizon_of, within_budget
from storlab.run.planning.metrics import foreseen, narrowed, refuse_unknown_metrics
from storlab.run.planning.order import PlannedTrial, round_order, start_time
from storlab.study.study import Study, load_study, preset_studies, shipped_studies
from storlab.workloads.base import Work
from study.program import call

STUDY = shipped_studies()["network-block"]


def test_claims_on_levels_that_the_parameters_lack_are_absent_and_others_add_their_comparisons() -> None:
    claims = {claim.name: claim for claim in design_of(load_study(STUDY)).claims}
    absent = {say(claim.absent) for claim in claims.values() if claim.absent}
    assert absent == {"This run has no elevator=mq-deadline.", "This run has no transport=dst-nosack."}
    every = "transport=dst,dst-1,dst-2,dst-nosack,relay,whole,nagle,iscsi,nvme,aoe,nfs,local"
    both = load_study(STUDY, ['elevators=["none", "mq-deadline"]'], [every])
    assert not any(claim.absent for claim in design_of(both).claims)
    only = design_of(load_study(STUDY, only=["transport=nbd,dst"])).claims
    assert "This run has no transport=iscsi and no transport=nvme." in {say(c.absent) for c in only if c.absent}
    (elevator,) = (spec for spec in design_of(both).planned() if spec.factor == "elevator")
    assert (elevator.pairs, elevator.only) == ((("none", "mq-deadline"),), {"transport": "relay"})


WAYS = """
title = "t"
primary = "read.iops"
[factors.fs]
a = "ext4"
b = "xfs"
[factors.rw]
levels = ["read", "write", "rw"]
[nodes.local]
stack = [{ layer = "file", size = "320M" }, { layer = "loop" }, { layer = "mkfs", type = "{fs}" }, { layer = "mount" }]
[workload.w]
fio = { rw = "{rw}", size = "1M" }
[[compare]]
factor  = "fs"
metrics = ["read.iops", "write.iops"]
"""


def test_nothing_is_asked_about_what_a_load_does_not_do() -> None:
    mail = load_study(preset_studies()["mail"])
    planned = foreseen(mail, {})
    asked = {(item.question.metric, item.question.within["load"]) for item in planned}
    assert {name for name, load in asked if load == "mbox"} == {"write.iops", "write.amplification"}
    assert not any(item.problem for item in planned)
    of_ways = {(item.question.metric, item.question.within.get("rw")) for item in foreseen(parsed(WAYS), {})}
    assert of_ways == {(f"{way}.iops", rw) for way in ("read", "write") for rw in (way, "rw", None)}


@pytest.mark.parametrize(
    ("load", "left_out", "asked"),
    [("maildir", "write.iops", ["create.rate", "delete.rate"]), ("mbox", "create.rate, delete.rate", ["write.iops"])],
)
def test_what_only_leaves_out_is_neither_refused_nor_asked_for_and_a_misspelling_is(
    load: str, left_out: str, asked: list[str]
) -> None:
    study = load_study(preset_studies()["mail"], only=[f"load={load}"])
    refuse_unknown_metrics(study)
    found = narrowed(study)
    assert found.notes == (f"no level that --only leaves yields {left_out}: nothing is asked about it",)
    metrics = [each for spec in design_of(found).planned() for each in spec.metrics or ()]
    assert metrics == [*asked, "write.amplification"]
    assert narrowed(study.whole() or study).notes == ()
    misspelt = load_study(preset_studies()["mail"], ["compare.1.metrics=['write.ipos']"], [f"load={load}"])
    with pytest.raises(StudyError, match=r"unknown metric 'write\.ipos'"):
        refuse_unknown_metrics(misspelt)


DEPTHS, MODES, SIZES = "iodepth = [1, 2, 4, 8]\n", 'mode = ["randread", "randwrite"]\n', 'bs = ["4k", "64k"]\n'


def swept(factors: str = DEPTHS + MODES + SIZES, compare: str = "", only: tuple[str, ...] = ()) -> Study:
    return parsed(sample(__file__, "cases/sweep.toml", factors=factors, compare=compare), only=only)


def one_by_one(study: Study) -> list[tuple[str, dict[str, str], bool]]:
    return [(spec.factor, dict(spec.only), spec.within) for spec in design_of(study).planned()]


def test_a_study_compares_its_first_factor_over_all_points_of_a_sweep_unless_compare_says_otherwise() -> None:
    assert {factor for factor, *_ in one_by_one(swept(MODES + SIZES + "iodepth = [1]\n"))} == {"mode"}
    assert one_by_one(swept(compare="compare = []")) == []
    assert one_by_one(swept()) == [("mode", {"bs": "4k"}, False), ("mode", {"bs": "64k"}, False), ("mode", {}, False)]
    assert one_by_one(swept(compare="compare = [{ within = true }]")) == [("mode", {}, True)]
    # A factor whose levels are numbers is compared only if it is named.
    rest = 'mode = ["randread"]\nbs = ["4k"]\n'
    assert {factor for factor, *_ in one_by_one(swept())} == {"mode"}
    assert {factor for factor, *_ in one_by_one(swept(compare="compare = [{ factor = 'iodepth' }]"))} == {"iodepth"}
    assert swept().sweeps == ("iodepth",)
    assert swept("iodepth = [1, 8]\n" + rest).sweeps == ()  # one pair is a question
    assert swept(only=("iodepth=1,8",)).sweeps == ("iodepth",)  # what --only leaves out changes no question


def test_a_study_with_nothing_but_sweeps_stops_by_the_intervals_of_its_points() -> None:
    alone = DEPTHS + 'mode = [4096, 8192, 16384]\nbs = ["4k", "64k", "1M"]\n'
    text = sample(__file__, "cases/sweep.toml", factors=alone, compare="").replace('"{mode}"', '"read"')
    made = parsed(text)
    assert one_by_one(made) == []
    rule = rule_of(made, (5, 30))
    assert (rule.until, rule.precision) == ("points", 0.10)
    assert rule_of(made, (5, 30), Limits(until="±3%")).precision == 0.03
    assert rule_of(made, (5, 30), Limits(until="max")).until == "rounds"
    assert rule_of(swept(), (5, 30)).until == "decided"


NOISE = MachineNoise(
    machine="m", measured="2026-11-24T05:00:00+00:00", study="", title=BUILT_IN_TITLE, metric="bandwidth", seconds=1.0,
    overhead=0.5, values=(40_960_000.0, 4_096_000.0, 8_192_000.0),
)  # fmt: skip


@pytest.mark.parametrize(
    ("load", "work"),
    [
        ('fio = { rw = "write", bs = "4k", size = "4M" }', Work(4 << 20, 0)),
        ('fio = { rw = "write", bs = "4k", size = "4M", fsync = 1 }', Work(4 << 20, 1024)),
        ('fio = { rw = "write", bs = "4k", size = "4M", fdatasync = 4, numjobs = 2 }', Work(8 << 20, 512)),
        ('fio = { rw = "randread", bs = "4k", size = "1G", io_size = "4M" }', Work(4 << 20, 1024)),
        ('fio = { rw = "write", bs = "4k", size = "4M", loops = 3, runtime = "10s" }', Work(12 << 20, 0, 10.0)),
        ('fio = { rw = "write", bs = "4k", size = "50%" }', None),
        ('files = { files = 1000, size = "4k", phases = ["create", "read"], fsync = "file" }', Work(8_192_000, 1000)),
        ('files = { files = 1000, size = "4k", phase_limit = "5s" }', None),
        ('bonnie = { size = "64M", fast = true }', Work(256 << 20, 8192)),
        ('command = { argv = ["make"] }', None),
    ],
)
def test_a_load_without_a_time_says_how_much_it_does(load: str, work: Work | None) -> None:
    study = parsed(f'title = "A"\nstack = [{{ layer = "directory" }}]\n[workload.w]\n{load}\n')
    assert study.cells[0].loads[0].workload.work() == work


def test_an_amount_takes_as_long_as_its_bytes_and_its_waits_at_the_rate_of_storlab_noise_by_its_own_study() -> None:
    assert Speed(100.0, 10.0).seconds(Work(200, 30)) == 5.0
    assert Speed(100.0, 10.0).seconds(Work(200, 30, longest=4.0)) == 4.0
    assert (speed_of(NOISE).rate, speed_of(NOISE).measured) == (2000.0, "2026-11-24")
    other = MachineNoise("m", NOISE.measured, "", "Another study", "bandwidth", 1.0, 0.5, NOISE.values)
    assert [speed_of(noise).rate for noise in (None, other)] == [ASSUMED_RATE] * 2


def test_a_plan_says_what_its_time_rests_on_and_takes_it_from_the_last_run_where_there_is_one(lab: Laboratory) -> None:
    study = lab.study(
        'repeat = { min = 2, max = 2 }\nstack = [{ layer = "directory" }]\n[probes]\n'
        '[trial]\nsettle = { sync = false, drop_caches = false }\n[factors]\nsize = ["1M", "2M"]\n'
        '[workload.load]\nfio = { rw = "write", bs = "64k", size = "{size}" }\n'
    )

    def line(label: str) -> str:
        shown = lab.storlab("plan", study, cwd=lab.folder).stdout
        text = re.search(rf"^{label} +(.*)$", shown, re.MULTILINE)
        assert text is not None, shown
        return text[1].rstrip()

    rate = "1,000 operations/s that wait for storage and 200 MiB/s, which is assumed"
    assert f"load by the amount of work at {rate}" in line("Time")
    assert re.fullmatch(rf"2M of \d+G free in {lab.scratch}, for files of the loads", line("Disk space"))
    assert lab.storlab("run", study, "--quiet", cwd=lab.folder).status == 0
    assert "if trials take as long as in its last run, runs/study-" in line("Time")
    lab.study("repeat" + study.read_text().partition("repeat")[2] + "# another text\n")
    assert "which is assumed" in line("Time")


def test_servers_take_time_in_each_trial_and_guests_for_a_round_once() -> None:
    names = ("database-variability", "shared-folders-network")
    database, guest = (load_study(shipped_studies()[name]).cells[0] for name in names)
    assert start_time(database, "trial") == pytest.approx(2 + 4 * 50_000 * 600 / 100e6)
    assert (start_time(database, "round"), start_time(guest, "trial")) == (0, 0)
    assert start_time(guest, "round") == guest.nodes["vm"].start_time() > 0


@pytest.mark.timeout(30)
def test_a_summary_that_would_never_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "runs" / "quick-1").mkdir(parents=True)
    os.mkfifo(tmp_path / "runs" / "quick-1" / "summary.json")
    (tmp_path / "runs" / "quick-2").mkdir()
    (tmp_path / "runs" / "quick-2" / "summary.json").symlink_to("/dev/zero")
    assert typical_noise(load_study(Path(storlab.__file__).parent / "studies" / "quick.toml")).sd == ASSUMED


@pytest.mark.parametrize(
    ("stack", "size", "line", "told"),
    [
        ('[{ layer = "directory" }]', "900T", 4, "the load writes 900T, but /var/tmp has only"),
        ('[{ layer = "file", size = "900T" }, { layer = "loop" }]', "1M", 2, "the stacks take up 900T on node host"),
        ('[{ layer = "file", size = "900T", overcommit = true }, { layer = "loop" }]', "1M", None, ""),
    ],
)
def test_a_size_beyond_the_free_space_is_refused_where_it_stands(
    tmp_path: Path, stack: str, size: str, line: int | None, told: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(f'title = "t"\nstack = {stack}\n\n[workload.w]\nfio = {{ rw = "read", size = "{size}" }}\n')
    done = call("plan", str(file))
    assert told in done.message and "Traceback" not in done.message
    assert done.status == (0 if line is None else 2)
    if line is not None:
        assert done.message.startswith(f"{file}: line {line}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


@pytest.mark.parametrize("says", ["/etc/passwd is no kernel that a guest can boot", "/none/bzImage"])
def test_a_kernel_that_is_none_is_refused_where_it_is_written(lab: Laboratory, says: str) -> None:
    with pytest.raises(StudyError) as raised:
        lab.execute(guests("true", kernel=f'"{says.partition(" ")[0]}"'))
    (problem,) = raised.value.problems
    assert problem.key == "nodes.vm.kernel" and problem.line is not None and says in problem.message
    assert not lab.out.exists()


Groups = Mapping[int, int]
Cells = tuple[list[int], dict[int, int], dict[int, int]]

CELLS = st.integers(1, 9)
SEEDS = st.integers(0, 2**32 - 1)
ROUNDS = st.integers(1, 10_000)


@st.composite
def groupings(draw: st.DrawFn) -> Cells:
    """Cells, their groups, and blocks of some of them."""
    cells = list(range(1, draw(CELLS) + 1))
    groups = {cell: draw(st.integers(1, 3)) for cell in cells}
    blocks = {cell: block for cell in cells if (block := draw(st.integers(0, 3)))}
    return cells, groups, blocks


def together(order: Iterable[object]) -> bool:
    """Whether equal ones follow each other."""
    runs = [key for key, _ in groupby(order)]
    return len(runs) == len(set(runs))


def ordered(cells: int, groups: Groups | None, seed: int, blocks: Mapping[int, int] | None = None) -> tuple[int, ...]:
    return tuple(planned.cell for planned in round_order(range(1, cells + 1), 1, seed, blocks, groups))


@given(groupings(), SEEDS, ROUNDS)
def test_every_cell_is_there_once_by_blocks_and_groups_with_a_number_of_its_own_and_always_the_same(
    given_: Cells, seed: int, number: int
) -> None:
    cells, groups, blocks = given_
    for grouping in (groups, None):
        order = round_order(cells, number, seed, blocks, grouping)
        assert sorted(planned.cell for planned in order) == cells
        first = (number - 1) * len(cells) + 1
        assert [planned.number for planned in order] == list(range(first, first + len(cells)))
        assert {planned.block for planned in order} <= {*blocks.values(), None}
        assert len({planned.seed for planned in order}) == 1
        assert round_order(cells, number, seed, blocks, grouping) == order
    in_blocks = _cells(round_order(cells, number, seed, blocks, groups))
    assert together(blocks.get(cell, -cell) for cell in in_blocks)
    assert together((blocks.get(cell, -cell), groups[cell]) for cell in in_blocks)
    assert together(groups[cell] for cell in _cells(round_order(cells, number, seed, {}, groups)))


def test_orders_are_those_of_every_version_before() -> None:
    """A run that is resumed goes on in the order that it had: these never change."""
    assert _cells(round_order([1, 2, 3, 4, 5, 6], 3, 7)) == [6, 3, 2, 4, 5, 1]
    assert _cells(round_order([1, 2, 3, 4, 5, 6], 3, 7, {1: 1, 2: 1})) == [6, 3, 2, 1, 4, 5]
    groups = {1: 1, 2: 2, 3: 1, 4: 2, 5: 1, 6: 2}
    assert _cells(round_order([1, 2, 3, 4, 5, 6], 3, 7, {}, groups)) == [2, 6, 4, 1, 3, 5]
    assert _cells(round_order([1, 2, 3, 4, 5, 6], 3, 7, {1: 1, 3: 1}, groups)) == [4, 2, 6, 1, 3, 5]
    assert round_order([1, 2], 3, 7, {}, {1: 1, 2: 1})[0].seed == 1107647929


def _cells(order: Iterable[PlannedTrial]) -> list[int]:
    return [planned.cell for planned in order]


def test_groups_that_no_block_divides_are_together_though_there_are_blocks() -> None:
    groups = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2}
    for seed in range(50):
        assert together(groups[cell] for cell in ordered(6, groups, seed, {1: 1, 2: 1, 4: 2, 5: 2}))


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2), (3, 2), (3, 1, 1)])
def test_every_order_that_keeps_groups_together_is_as_likely_as_any_other(sizes: tuple[int, ...]) -> None:
    """So exchanging two cells of a group changes nothing, whatever the others are and do."""
    groups = dict(enumerate((group for group, size in enumerate(sizes) for _ in range(size)), start=1))
    possible = [order for order in permutations(groups) if together(groups[cell] for cell in order)]
    found = Counter(ordered(len(groups), groups, seed) for seed in range(60 * len(possible)))
    assert found.keys() == set(possible)
    assert stats.chisquare([found[order] for order in possible]).pvalue > 1e-4


@pytest.mark.parametrize("blocks", [{}, {1: 1, 2: 1, 3: 1}, {1: 1, 3: 1, 2: 2, 4: 2}, {1: 1, 2: 1, 3: 1, 4: 2}])
def test_of_two_cells_that_are_compared_each_goes_first_half_of_the_time(blocks: dict[int, int]) -> None:
    groups = {1: 1, 2: 1, 3: 2, 4: 2}
    orders = [ordered(4, groups, seed, blocks) for seed in range(2000)]
    for a, b in combinations(range(1, 5), 2):
        first = sum(order.index(a) < order.index(b) for order in orders)
        assert stats.binomtest(first, len(orders)).pvalue > 1e-4, (a, b)


def test_what_evidence_aims_at_is_the_last_round_that_may_come_and_follows_a_budget_down_at_once() -> None:
    def horizon(text: str) -> Horizon | None:
        head = 'title = "Two builds"\nprimary = "took"\nstack = [{ layer = "directory" }]\nrepeat = { '
        found = parsed(f"{head}{text} }}\n{_COMPARED}")
        return horizon_of(found, (found.model.repeat.min, found.model.repeat.max))

    assert horizon("max = 12") == Horizon("B", 0.95, (Aim(0, 12),))
    assert horizon('max = 12, aim = "small differences"') == Horizon("A", 0.95, (Aim(0, 12),))
    text = f'title = "A"\nprimary = "took"\nstack = [{{ layer = "directory" }}]\n{_COMPARED}'
    built = parsed(text)
    assert horizon_of(built, (5, 10_000)) is None
    begun = Horizon("B", 0.95, (Aim(0, 30),))
    assert horizon_of(built, (5, 10_000), Limits(minutes=5)) == begun, "until a round is done"
    assert horizon('until = "steady"') is None and horizon("max = 10_000") is None
    assert horizon("max = 30") == aiming_at(begun, 30, 4) == aiming_at(begun, 4, 4) == begun
    shorter = within_budget(begun, 5, 12)
    assert shorter == Horizon("B", 0.95, (Aim(0, 30), Aim(5, 17)))
    assert [within_budget(shorter, 10, left) for left in (0, 7, 8)] == [shorter] * 3, "nor is a little more worth it"
    longer = within_budget(shorter, 10, 9)
    assert longer is not None and longer.aims[-1] == Aim(10, 19)
    assert bet_of(longer).horizons == ((0, 30), (5, 17), (10, 19))
    assert aiming_at(None, 12, 3) is within_budget(None, 3, 9) is None, "what was not recorded at first never is"
    with pytest.raises(RecordsError, match="horizon"):
        bet_of(Horizon("B", 0.95, (Aim(3, 9),)))


_COMPARED = """compare = [{ factor = "build" }]
[factors.build]
old = { time = "10" }
new = { time = "5" }
[workload.load.command]
argv = ["echo", "took {build.time} s"]
metrics = [{ name = "took", regex = "took ([0-9.]+) s", unit = "s", better = "lower" }]
"""
