"""Rounds of one run that several machines do, or queues of others carry: together they are that run."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from laboratory import Ended, Laboratory, ended, kill, opened, wait_until
from laboratory.samples import sample
from laboratory.slurm import Cluster, cluster
from storlab.base.errors import StorlabError
from storlab.base.record import to_json
from storlab.findings.runs import Rested
from storlab.nodes.agent.protocol import Cpus, Kernel
from storlab.records.manifest import Manifest, Rest, read_manifest, write_manifest
from storlab.records.run_folder import RunFolder, TrialRecord
from storlab.run.merging import merge_runs
from study.program import PROGRAM

from .workflows import Workflow, environment_of

STUDY = sample(__file__, "cases/shared-rounds.toml")
SLOW = STUDY.replace("echo took", "sleep 0.3; echo took")


def machine(name: str) -> list[str]:
    """A machine of this name, as far as its name is all that matters."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"]


def on(lab: Laboratory, name: str, *arguments: str | Path) -> Ended:
    return ended(lab.start(*arguments, wrapper=machine(name)))


def trials(folder: Path) -> list[TrialRecord]:
    return list(RunFolder.open(folder).records())


def places(folder: Path) -> list[tuple[int, int, int]]:
    return [(record.trial, record.round, record.cell) for record in trials(folder)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """Three machines have done two rounds each of a plan of six."""
    with opened(Laboratory(tmp_path_factory.mktemp("shared"))) as found:
        folder = found.folder
        planned = found.storlab("plan", found.study(STUDY), "--rounds", "6", "--seed", "3", "--write", folder / "plan")
        assert planned.status == 0, str(planned)
        for number in (1, 2, 3):
            asked = ("--rounds", f"{2 * number - 1}-{2 * number}", "--of", folder / "plan", "--quiet")
            done = on(found, f"lab{number}", "run", *asked, "--out", folder / f"part-{number}")
            assert done.status == 0, str(done)
        merged = found.storlab("merge", *parts(folder), "--out", folder / "run")
        assert merged.status == 0, str(merged)
        assert "rounds by machine: lab1: 1–2; lab2: 3–4; lab3: 5–6" in merged.stderr
        yield found


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-?"))


pytestmark = pytest.mark.needs("root")


def test_rounds_of_three_machines_are_the_run_that_one_would_have_done(lab: Laboratory) -> None:
    folder = lab.folder
    alone = lab.storlab("run", lab.study(STUDY), "--rounds", "6", "--seed", "3", "--quiet", "--out", folder / "alone")
    assert alone.status == 0, str(alone)
    assert places(folder / "run") == places(folder / "alone") and len(places(folder / "run")) == 12
    table = json.loads(lab.storlab("report", folder / "run", "--format", "json").stdout)
    (verdict,) = [each["verdict"] for each in table["comparisons"]]
    assert (verdict, table["rounds_done"]) == ("better", 6)
    trials_of = RunFolder.open(folder / "run").trials
    assert dict(trials_of.select("round", "host").iter_rows()) == {
        1: "lab1", 2: "lab1", 3: "lab2", 4: "lab2", 5: "lab3", 6: "lab3"
    }  # fmt: skip
    assert read_manifest(folder / "run").assigned is None
    compared = lab.storlab("compare", folder / "run", "--by", "build", "--fail-on", "worse>3%")
    assert compared.status == 0 and "different machines" not in compared.stdout, str(compared)


def test_merging_again_changes_nothing_and_a_round_that_comes_later_is_added(lab: Laboratory, tmp_path: Path) -> None:
    first, *others = parts(lab.folder)
    assert merge_runs([first, others[1]], tmp_path / "run").missing == (3, 4)
    later = merge_runs([others[0]], tmp_path / "run")
    assert (later.added, later.missing) == ((3, 4), ())
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert merge_runs(parts(lab.folder), tmp_path / "run").added == ()
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert places(tmp_path / "run") == places(lab.folder / "run")


def test_a_merged_run_is_resumed_and_gets_the_rounds_that_it_lacks(lab: Laboratory, tmp_path: Path) -> None:
    first, _, last = parts(lab.folder)
    merged = lab.storlab("merge", first, last, "--quiet", "--out", tmp_path / "run")
    assert merged.status == 3 and f"`storlab run --rounds 3-4 --of {tmp_path / 'run'}`" in merged.stderr, str(merged)
    resumed = on(lab, "lab4", "resume", tmp_path / "run", "--quiet")
    assert resumed.status == 0, str(resumed)
    hosts = {record.round: record.hosts[0].name for record in trials(tmp_path / "run")}
    assert [hosts[number] for number in range(1, 7)] == ["lab1"] * 2 + ["lab4"] * 2 + ["lab3"] * 2


def test_an_assignment_that_was_killed_is_done_again_and_counts_once(tmp_path: Path) -> None:
    with opened(Laboratory(tmp_path / "lab")) as lab:
        assert lab.storlab("plan", lab.study(SLOW), "--rounds", "4", "--write", tmp_path / "plan").status == 0
        asked = ("run", "--rounds", "1-4", "--of", tmp_path / "plan", "--quiet", "--out")
        killed = lab.start(*asked, tmp_path / "part-1", wrapper=machine("lab1"))
        assert wait_until((tmp_path / "part-1" / "trials" / "0004" / "trial.json").exists)
        kill(killed)
        partly = lab.storlab("merge", tmp_path / "part-1", "--quiet", "--out", tmp_path / "partly")
        assert partly.status == 3 and "missing: rounds" in partly.stderr, str(partly)
        assert on(lab, "lab2", *asked, tmp_path / "part-2").status == 0
        found = merge_runs([tmp_path / "part-1", tmp_path / "part-2"], tmp_path / "run")
        assert dict(found.hosts) == {"lab2": (1, 2, 3, 4)} and not found.missing
        assert places(tmp_path / "run") == places(tmp_path / "part-2")
        lab.storlab("clean", tmp_path / "part-1", "--yes")


def test_a_round_that_one_machine_began_is_done_whole_by_the_one_that_resumes(tmp_path: Path) -> None:
    with opened(Laboratory(tmp_path / "lab")) as lab:
        out = tmp_path / "run"
        assert on(lab, "lab1", "run", lab.study(STUDY), "--rounds", "3", "--quiet", "--out", out).status == 0
        shutil.rmtree(out / "trials" / "0006")
        resumed = on(lab, "lab2", "resume", out)
        assert resumed.status == 0 and "Round 3 was begun on lab1 and not ended" in resumed.stderr, str(resumed)
        assert [record.hosts[0].name for record in trials(out)] == ["lab1"] * 4 + ["lab2"] * 2


def test_nothing_stops_inside_and_cells_that_rest_do_so_in_assignments_as_well(lab: Laboratory, tmp_path: Path) -> None:
    asked = ("run", lab.study(STUDY), "--seed", "3", "--quiet", "--out")
    whole = lab.storlab(*asked, tmp_path / "whole")
    assert whole.status == 0 and max(record.round for record in trials(tmp_path / "whole")) == 6, str(whole)
    part = lab.storlab(*asked, tmp_path / "part", "--rounds", "1-8")
    assert part.status == 0 and max(record.round for record in trials(tmp_path / "part")) == 8, str(part)
    manifest = read_manifest(tmp_path / "whole")
    write_manifest(tmp_path / "whole", replace(manifest, rests=(Rest(1, 6, Rested("decided")),)))
    more = lab.storlab("run", "--rounds", "7-8", "--of", tmp_path / "whole", "--quiet", "--out", tmp_path / "more")
    assert more.status == 0 and {record.cell for record in trials(tmp_path / "more")} == {2}, str(more)
    assert merge_runs([tmp_path / "more"], tmp_path / "whole").missing == ()
    assert len(trials(tmp_path / "whole")) == 14


def test_runs_of_two_machines_are_compared_on_each_and_pass_no_gate_together(lab: Laboratory) -> None:
    first, second, _ = parts(lab.folder)
    told = lab.storlab("compare", first, second, "--by", "build", "--fail-on", "worse>900%", "--allow-undecided")
    assert told.status == 4, str(told)
    said = " ".join(told.stdout.split())
    assert "machine=lab1" in said and "machine=lab2" in said
    assert "their rounds are of different machines (lab1; lab2)" in said.lower()
    runs = lab.storlab("compare", first, second, "--fail-on", "differs>900%")
    assert runs.status == 4 and "they ran on different machines" in " ".join(runs.stdout.split()), str(runs)


def changed(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        write_manifest(folder, replace(read_manifest(folder), **changes))

    return change


def of_host(field: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest: Manifest = read_manifest(folder)
        nodes = {name: replace(facts, **{field: value}) for name, facts in manifest.nodes.items()}
        write_manifest(folder, replace(manifest, nodes=nodes))

    return change


def of_trial(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "trials" / "0005" / "trial.json"
        path.write_bytes(to_json(replace(next(r for r in trials(folder) if r.trial == 5), **changes)))

    return change


def linked(folder: Path) -> None:
    (folder / "trials" / "0005" / "more").symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(seed=4), r"part-2, done on lab2, is no part .* its seed is 4, and not 3"),
        (changed(study_text=STUDY + "# changed\n"), "its study is another one"),
        (changed(storlab="0.0.1"), "its version of Storlab is 0.0.1, and not"),
        (changed(overrides=("a=1",)), "its --set is a=1, and not not given"),
        (of_host("kernel", Kernel("9.9", "#1", "x86_64")), "done on lab2, had the kernel 9.9 on host, and .*lab1"),
        (of_host("cpus", Cpus(2, "Z80")), "had the CPU model Z80 on host"),
        (changed(emulated=True), "part-2, done on lab2, emulated its virtual machines, and .*lab1, did not"),
        (of_trial(round=9), "0005/trial.json is damaged: a run of 2 cells has no such trial in round 9"),
        (linked, "more is neither a file nor a folder"),
    ],
)  # fmt: skip
def test_what_is_no_part_of_the_run_is_refused_with_what_differs(
    change: Callable[[Path], None], message: str, lab: Laboratory, tmp_path: Path
) -> None:
    shutil.copytree(lab.folder / "part-2", tmp_path / "part-2")
    change(tmp_path / "part-2")
    with pytest.raises(StorlabError, match=message):
        merge_runs([lab.folder / "part-1", tmp_path / "part-2"], tmp_path / "run")


def test_a_round_that_two_machines_did_is_refused_as_nothing_says_which_counts(lab: Laboratory, tmp_path: Path) -> None:
    asked = ("run", "--rounds", "2-3", "--of", lab.folder / "plan", "--quiet", "--out", tmp_path / "again")
    assert on(lab, "lab9", *asked).status == 0
    merged = lab.storlab("merge", *parts(lab.folder), tmp_path / "again", "--out", tmp_path / "run")
    assert merged.status == 2 and "round 2 was done twice" in merged.stderr, str(merged)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run STUDY --rounds 5-8", "give all of them the same --seed, or --of RUN"),
        ("run STUDY --rounds 8-5 --seed 1", "cannot read --rounds '8-5'"),
        ("run STUDY --rounds 5-8 --seed 1 --fail-on worse", "as the others are not known here"),
        ("run --of PLAN", "say which of its rounds, --rounds 5-8"),
        ("run --of PLAN --rounds 1-2 --seed 4", "--seed is that of"),
        ("run OTHER --of PLAN --rounds 1-2", "is not the study of"),
        ("run --of PART --rounds 1-2", "it is itself an assignment"),
        ("run --rounds 1-2", "name a study"),
        ("resume PART --rounds 9", "this run is an assignment, rounds 1 to 2 of another"),
        ("merge PLAN --out NEW", "no run has a round that is done"),
    ],
)
def test_options_that_say_nothing_together_are_usage_errors(
    arguments: str, message: str, lab: Laboratory, tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text(lab.study(STUDY).read_text() + "\n# another\n")
    named = {
        "STUDY": lab.study(STUDY),
        "OTHER": tmp_path / "other.toml",
        "PLAN": lab.folder / "plan",
        "PART": lab.folder / "part-1",
        "NEW": tmp_path / "new",
    }
    told = lab.storlab(*(named.get(word, word) for word in arguments.split()))
    assert told.status == 2 and message in " ".join(told.stderr.split()), str(told)


ROOT = Path(__file__).parents[2]
CI = ROOT / "examples" / "ci"


def hosts_of(run: Path) -> dict[int, str]:
    return {record.round: record.hosts[0].name for record in RunFolder.open(run).records()}


SLOWED = """"sh", "-c", 'sleep 0.5; exec "$@"', "sh", "{build.program}\""""


def test_a_github_matrix_does_its_rounds_on_three_runners_and_gates_what_came_of_all(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout" / "examples" / "ci"
    checkout.mkdir(parents=True)
    # Half a second more: no pause of a busy machine makes nine of these ten times as long.
    study = (CI / "regression.toml").read_text().replace('["{build.program}"', f"[{SLOWED}")
    assert SLOWED in study
    (checkout / "regression.toml").write_text(study)
    context = {"github.run_id": "16123456789", "github.run_attempt": "1"}

    def runner(job: str) -> list[str]:
        return ["unshare", "--uts", "sh", "-c", f'hostname runner-{job}; exec "$@"', "sh"]

    text = (CI / "github-matrix.yml").read_text().replace("worse>25%", "worse>900%")
    environment = environment_of(PROGRAM)
    ran = Workflow(text, tmp_path / "checkout", tmp_path / "work", environment, context, runner)
    statuses = ran.run()
    assert [statuses[f"rounds ({rounds})"] for rounds in ("1-3", "4-6", "7-9")] == [[0]] * 3, statuses
    assert statuses["verdict"] == [0, 0], statuses
    done = hosts_of(ran.artifacts["run"])
    assert [done[number] for number in range(1, 10)] == [f"runner-rounds-{at}" for at in (0, 1, 2) for _ in range(3)]
    assert "no gate was hit" in (tmp_path / "work" / "verdict-0.md").read_text()


def idle(slurm: Cluster, folder: Path) -> bool:
    return slurm.command("squeue", "--noheader", "--format=%i", folder=folder) == ""


def merge(folder: Path) -> subprocess.CompletedProcess[str]:
    """All that tasks have left so far."""
    parts = [str(part) for part in sorted(folder.glob("parts/*"))]
    argv = [str(PROGRAM), "merge", *parts, "--quiet", "--out", "run"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.needs("slurm")
def test_a_slurm_array_survives_a_node_that_loses_power(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    text = sample(__file__, "cases/shared-rounds.toml").replace("echo took", "sleep 1; echo took")
    study.write_text(f'schema = 1\ntitle = "On a cluster"\n{text}')
    subprocess.run([PROGRAM, "plan", study, "--rounds", "12", "--write", "plan"], cwd=tmp_path, check=True)
    with cluster(tmp_path / "slurm", Path("/var/tmp")) as slurm:
        slurm.environment["PATH"] = f"{PROGRAM.parent}:{slurm.environment['PATH']}"
        job = str(CI / "slurm-array.sh")
        slurm.command("sbatch", "--parsable", job, folder=tmp_path)
        assert wait_until(lambda: len([*tmp_path.glob("parts/*/trials/*/trial.json")]) >= 6, 120)
        node = next(name for name, at in _nodes(slurm, tmp_path).items() if at == "2")
        slurm.power_off(node)
        assert wait_until(lambda: idle(slurm, tmp_path), 180)
        merged = merge(tmp_path)
        assert merged.returncode == 3 and "missing: rounds" in merged.stderr, merged.stderr
        slurm.command("sbatch", "--array=2", f"--exclude={node}", job, folder=tmp_path)
        assert wait_until(lambda: idle(slurm, tmp_path), 180)
    merged = merge(tmp_path)
    logs = [path.read_text() for path in tmp_path.glob("slurm-*.log")]
    assert merged.returncode == 0, (merged.stderr, logs)
    done = hosts_of(tmp_path / "run")
    assert sorted(done) == [*range(1, 13)] and done[8] != node
    assert Counter(record.round for record in RunFolder.open(tmp_path / "run").records()) == dict.fromkeys(done, 2)
    report = subprocess.run([PROGRAM, "report", "run"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "better" in report.stdout


def _nodes(slurm: Cluster, folder: Path) -> dict[str, str]:
    """Which task of the array each node runs."""
    lines = slurm.command("squeue", "--noheader", "--format=%N %K", folder=folder).splitlines()
    return dict(line.split() for line in lines if len(line.split()) == 2)
