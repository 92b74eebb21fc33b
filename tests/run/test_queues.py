"""Queues of others that carry assignments, as the how-to has them: they know nothing of Storlab but its commands."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from laboratory import wait_until
from laboratory.samples import sample
from laboratory.slurm import Cluster, cluster
from storlab.records.run_folder import RunFolder
from study.program import PROGRAM

from .workflows import Workflow, environment_of

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples" / "ci"


def hosts_of(run: Path) -> dict[int, str]:
    return {record.round: record.hosts[0].name for record in RunFolder.open(run).records()}


@pytest.mark.needs("root")
def test_a_github_matrix_does_its_rounds_on_three_runners_and_gates_what_came_of_all(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout" / "examples" / "ci"
    checkout.mkdir(parents=True)
    study = (CI / "regression.toml").read_text().replace('"count=32"', '"count=1"')
    (checkout / "regression.toml").write_text(study)
    context = {"github.run_id": "16123456789", "github.run_attempt": "1"}

    def runner(job: str) -> list[str]:
        return ["unshare", "--uts", "sh", "-c", f'hostname runner-{job}; exec "$@"', "sh"]

    text = (CI / "github-matrix.yml").read_text().replace("worse>25%", "worse>900%")  # of so small a file
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
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    study.write_text(f'schema = 1\ntitle = "On a cluster"\nscratch = "{scratch}"\n{text}')
    subprocess.run([PROGRAM, "plan", study, "--rounds", "12", "--write", "plan"], cwd=tmp_path, check=True)
    with cluster(tmp_path / "slurm", scratch) as slurm:
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
