"""One study file, on this machine, in guests, on another machine as a whole, and on three at once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from laboratory import Laboratory
from laboratory.hosts import Hosts, bring, hosts
from storlab.records.run_folder import RunFolder

pytestmark = pytest.mark.needs("root", "guests", "sshd", "ssh")

STUDY = """
primary = "elapsed"
stack   = [{ layer = "directory" }]
factors = { nap = { short = "0.1", long = "1" } }
repeat  = { until = "max", min = 7, max = 7 }
trial   = { settle = { drop_caches = false } }
probes  = {}
workload.load.command.argv = ["sleep", "{nap}"]
"""
WAYS = {
    "here": (),
    "guest": ("--set", "nodes.vm.kind=vm", "--set", "nodes.vm.keep=run", "--set", "nodes.vm.memory=192M"),
    "on": ("--on", "lab1"),
    "three": ("--set", "nodes.lab.hosts=lab1,lab2,lab3"),
}


@pytest.fixture
def machines(lab: Laboratory) -> Iterator[Hosts]:
    """Three of them, of which the first has this Storlab."""
    with hosts(lab.folder / "hosts", 3, [lab.scratch]) as made:
        bring(made["lab1"])
        lab.environment |= made.environment
        yield made
        for name, host in made.hosts.items():
            assert (host.processes(), host.mounts()) == ([], []), name
            assert host.run("ls", "-A", str(lab.scratch)).split() == [], name


def test_one_study_has_one_order_and_one_answer_wherever_it_runs(lab: Laboratory, machines: Hosts) -> None:
    orders, answers = {}, {}
    for way, words in WAYS.items():
        out = lab.folder / way
        ran = lab.storlab("run", lab.study(STUDY), "--seed", "7", "--out", out, *words, timeout=600).with_status(0)
        records = list(RunFolder.open(out).records())
        assert all(each.status == "done" for each in records), ran
        orders[way] = [(each.trial, each.round, each.levels["nap"]) for each in records]
        (found,) = json.loads(lab.storlab("report", out, "--format", "json").stdout)["comparisons"]
        answers[way] = found["a"], found["b"], found["verdict"]
    assert len(orders["here"]) == 14 and all(each == orders["here"] for each in orders.values()), orders
    assert set(answers.values()) == {("short", "long", "better")}, answers
    assert sorted(records[0].nodes) == ["lab-1", "lab-2", "lab-3"]
