"""Runs the jobs of a workflow of GitHub Actions on this machine: their ``run:`` steps, matrices, order and artifacts.

Of actions, only those that carry files are known: a checkout is a copy, and artifacts are folders. What this doesn't
know it refuses, lest a workflow pass here for what it does not do there.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

_EXPRESSION = re.compile(r"\$\{\{\s*([^}]*?)\s*\}\}")


@dataclass
class Workflow:
    """``checkout``: what a checkout has. ``environment``: of all steps. ``host``: the wrapper of a job's commands."""

    text: str
    checkout: Path
    folder: Path
    environment: Mapping[str, str]
    context: Mapping[str, str]
    host: Any
    artifacts: dict[str, Path] = field(default_factory=dict)

    def run(self) -> dict[str, list[int]]:
        """The exit statuses of each job's ``run:`` steps, by job and matrix: ``rounds (1-3)``."""
        jobs: dict[str, Any] = yaml.safe_load(self.text)["jobs"]
        done: dict[str, list[int]] = {}
        for name in _ordered(jobs):
            for at, values in enumerate(_matrix(jobs[name])):
                called = f"{name} ({', '.join(values.values())})" if values else name
                done[called] = self._job(jobs[name], f"{name}-{at}", values)
        return done

    def _job(self, job: Mapping[str, Any], name: str, matrix: Mapping[str, str]) -> list[int]:
        work = self.folder / name
        work.mkdir(parents=True)
        known = {**self.context, **{f"matrix.{key}": value for key, value in matrix.items()}}
        environment = {**self.environment, "GITHUB_STEP_SUMMARY": str(self.folder / f"{name}.md")}
        statuses: list[int] = []
        for step in job["steps"]:
            if any(statuses) and "if" not in step:
                break
            if "run" in step:
                bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
                argv = [*self.host(name), *bash, _filled(step["run"], known)]
                ran = subprocess.run(argv, cwd=work, env=environment, capture_output=True, text=True, check=False)
                print(ran.stdout, ran.stderr)
                statuses.append(ran.returncode)
            else:
                self._use(step["uses"], step.get("with", {}), work, known)
        return statuses

    def _use(self, action: str, given: Mapping[str, str], work: Path, known: Mapping[str, str]) -> None:
        told = {key: _filled(value, known) for key, value in given.items()}
        match action.partition("@")[0]:
            case "actions/checkout":
                shutil.copytree(self.checkout, work, dirs_exist_ok=True)
            case "actions/upload-artifact":
                kept = self.folder / "artifacts" / told["name"]
                shutil.copytree(work / told["path"], kept)
                self.artifacts[told["name"]] = kept
            case "actions/download-artifact":
                for name, kept in self.artifacts.items():
                    if fnmatch(name, told["pattern"]):
                        shutil.copytree(kept, work / told["path"] / name)
            case _:
                raise ValueError(f"nothing here does what {action} does")


def _ordered(jobs: Mapping[str, Any]) -> Iterator[str]:
    """Each after those that it needs."""
    left = dict(jobs)
    while left:
        able = [name for name, job in left.items() if {*_list(job.get("needs", []))}.isdisjoint(left)]
        if not able:
            raise ValueError(f"these jobs wait for each other: {', '.join(left)}")
        for name in able:
            yield name
            del left[name]


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _matrix(job: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    factors: dict[str, list[Any]] = job.get("strategy", {}).get("matrix", {})
    for levels in itertools.product(*factors.values()):
        yield dict(zip(factors, map(str, levels), strict=True))


def _filled(text: str, known: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda found: known[found[1]], str(text))


def environment_of(program: Path) -> dict[str, str]:
    """With the program's folder first among those where commands are looked for."""
    return os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
