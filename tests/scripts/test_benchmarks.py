import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import benchmarks
from benchmarks.boot import figures
from benchmarks.locks_probe import cost
from benchmarks.net_setup import LAYERS, Seconds, medians
from benchmarks.net_setup_bare import BARE
from benchmarks.starts import Memory, Start, memory_of

from laboratory.samples import sample

ROOT = Path(__file__).resolve().parents[2]


def test_a_benchmark_is_a_module_with_a_main(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("def main() -> None: ...\n")
    (tmp_path / "a.py").write_text("x = 1\ndef main() -> None: ...\n")
    (tmp_path / "helpers.py").write_text("def domain() -> None: ...\n")
    (tmp_path / "b_child.py").write_text("def main() -> None: ...\n")
    (tmp_path / "__main__.py").write_text("def main() -> None: ...\n")
    assert benchmarks(tmp_path) == ["a", "b"]


def test_a_guests_memory_is_the_mapping_of_its_size_in_however_many_pieces() -> None:
    smaps = sample(__file__, "golden/smaps.txt")
    assert memory_of(smaps, 32 * 1024**2) == Memory(ram=123 * 1024, others=9 * 1024)


def test_a_ratio_is_that_of_starts_in_the_same_round() -> None:
    def start(seconds: float) -> Start:
        return Start(command=seconds, answering=0, emulated=0, cpu=seconds, ram=0, others=0)

    rounds = [
        {"cold": start(2), "restored": start(1), "virtme-ng": start(4)},
        {"cold": start(9), "restored": start(3), "virtme-ng": start(12)},
    ]
    ratios = figures(rounds)["ratios"]
    assert isinstance(ratios, dict)
    assert ratios["cold / virtme-ng"]["command"] == {"median": 0.625, "least": 0.5, "most": 0.75}


def test_setting_up_over_a_network_is_compared_by_medians_of_each_side() -> None:
    assert BARE.keys() == LAYERS.keys()
    turns = [
        {"storlab": Seconds(up, down), "bare": Seconds(1.0, 2.0)} for up, down in ((2.0, 2.0), (3.0, 1.0), (9.0, 5.0))
    ]
    found = medians(turns)
    assert found["up"] == {"storlab": 3.0, "bare": 1.0, "ratio": 3.0} and found["down"]["ratio"] == 1.0
    assert found["both"] == {"storlab": 4.0, "bare": 3.0, "ratio": 4 / 3}


def test_a_wait_costs_all_programs_of_a_side_and_is_counted_where_it_ends() -> None:
    before, after = [(10, 1000), (5, 500)], [(40, 4000), (15, 1500)]
    assert cost(before, after, 2.0) == {"nanoseconds": 400.0, "waits": 5.0}


@pytest.mark.needs("root", "bpftrace")
def test_both_sides_of_a_planted_contention_see_the_same_waits(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--quick", "--json", str(figures)]
    subprocess.run([sys.executable, "-m", "benchmarks.locks_probe", *options], cwd=ROOT, check=True)
    for each in json.loads(figures.read_text())["rounds"]:
        assert each["storlab"]["waits"] == pytest.approx(each["bpftrace"]["waits"], rel=0.05)
        assert each["floor"]["nanoseconds"] < each["storlab"]["nanoseconds"]


@pytest.mark.needs("guests")
def test_guests_of_all_sides_start(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--rounds", "1", "--guests", "1", "--json", str(figures)]
    subprocess.run([sys.executable, "-m", "benchmarks.boot", *options], cwd=ROOT, check=True)
    said = json.loads(figures.read_text())
    sides = said["guests"]["1"]["sides"]
    assert set(sides) == {"cold", "restored", "virtme-ng"}
    assert all(side["command"] > 0 and side["cpu"] > 0 and side["ram"] > 0 for side in sides.values())
    assert said["agent"]["agent"] > 0
