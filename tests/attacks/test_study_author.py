"""What the author of a study may try on whoever runs it: by fio's options, its job files, its engines, by commands."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from laboratory import Laboratory, needs_root
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Confinement, Exit, Node
from storlab.workloads.fio.workload import FioWorkload

HEAD = """primary = "{primary}"
stack = [{{ layer = "directory", path = "{folder}/data" }}]
repeat = {{ until = "max", min = 1, max = 1 }}
{more}
[probes]
[workload.load]
"""


def study(laboratory: Laboratory, options: str) -> str:
    """One load by fio."""
    (laboratory.folder / "data").mkdir(exist_ok=True)
    return HEAD.format(primary="write.iops", folder=laboratory.folder, more="") + f"fio = {{ {options} }}\n"


def command(laboratory: Laboratory, script: str, more: str = "") -> str:
    """One command of a shell, which has the target as ``$0``."""
    (laboratory.folder / "data").mkdir(exist_ok=True)
    head = HEAD.format(primary="elapsed", folder=laboratory.folder, more=more)
    return f"{head}command = {{ argv = ['sh', '-c', '''{script}''', '{{target}}'] }}\n"


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[str]:
    """A loop device with a file system, that no study names."""
    backing = tmp_path / "precious.img"
    subprocess.run(["truncate", "--size=64M", backing], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", backing], check=True)
    before = hashlib.sha256(backing.read_bytes()).hexdigest()
    made = subprocess.run(["losetup", "--find", "--show", backing], check=True, capture_output=True, text=True)
    device = made.stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)
    assert hashlib.sha256(backing.read_bytes()).hexdigest() == before, "it was written to"


REFUSED = [
    ('write_iolog = "${{HOME}}"', "fio would expand what follows the $"),
    ('write_hist_log = "/etc/x"', "may lead away"),
    ('mem = "mmapshared:/etc/x"', "may lead away"),
    ("mem = 'mmapshared\\:/etc/x'", "may lead away"),
    ('verify_state_load = "../x"', "may lead away"),
    ('exec_prerun = "touch x"', "fio would run a command"),
    ('exec-postrun = "touch x"', "fio would run a command"),
    ('ioscheduler = "none"', "would change a setting"),
    ('cgroup = "x"', "a cgroup outside"),
    ('size = "$mb_memory; touch x"', "comment"),
    ('size = "$mb_memory`touch x`"', "fio would expand what follows the $"),
    ('an_option_of_next_year = "/dev/sda"', "may lead away"),
    ('read_iolog = "/tmp/trace"', "replays a trace"),
    (f'description = "{"x" * 5000}"', "more than 4000 bytes"),
    ('jobs = { "../../x" = { rw = "read" } }', "not a valid name of a job"),
]


@pytest.mark.parametrize(("option", "says"), REFUSED)
def test_an_option_of_fio_that_could_lead_away_is_refused(option: str, says: str, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    written = laboratory.study(study(laboratory, f"rw = 'write', {option}"))
    ended = laboratory.storlab("plan", written)
    assert ended.status == 2, ended
    assert says in ended.stderr, ended
    assert option.split()[0] in ended.stderr or "jobs" in ended.stderr or "fio" in ended.stderr, ended


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("[a]\nread_iolog=/tmp/x\nrw=write\n", "replays a trace"),
        ("[a]\nmem=mmap:/etc/x\n", "line 2 of the job file: mem"),
        ("[../../a]\nrw=write\n", "line 1 of the job file"),
        ("[a]\nincludeX/etc/passwd\n", "line 2 of the job file"),
        ("[a]\nwrite_iolog=${HOME}\n", "line 2 of the job file: write_iolog"),
        (f"[a]\ndescription={'x' * 8179}filename=/dev/sda\n", "more than 4000 bytes"),
        ("[a]\nexec_prerun=touch x\n", "fio would run a command"),
    ],
)
def test_a_job_file_that_could_lead_away_is_refused(lines: str, says: str, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    (tmp_path / "x.fio").write_text(lines)
    ended = laboratory.storlab("plan", laboratory.study(study(laboratory, "job_file = 'x.fio'")))
    assert ended.status == 2, ended
    assert says in ended.stderr, ended


@needs_root
def test_a_trace_that_opens_a_device_does_not_reach_it(precious: str, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    trace = tmp_path / "trace"
    trace.write_text(
        f"fio version 2 iolog\n{precious} add\n{precious} open\n{precious} write 0 65536\n{precious} close\n"
    )
    options = f"read_iolog = '{trace}', replay_redirect = '{{target}}/redirected', size = '1M'"
    laboratory.run(study(laboratory, options))
    assert not laboratory.leftovers()


EVIL = r"""
#include <stdio.h>
__attribute__((constructor)) static void run(void) { FILE *f = fopen("%s", "w"); if (f) fclose(f); }
"""


@pytest.fixture
def engine(tmp_path: Path) -> tuple[Path, Path]:
    """An engine for fio that makes a file when it is loaded, and that file."""
    if shutil.which("gcc") is None:
        pytest.fail("needs gcc, which the base toolchain has")
    source, made, proof = tmp_path / "evil.c", tmp_path / "evil.so", tmp_path / "proof"
    source.write_text(EVIL % proof)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return made, proof


def test_an_engine_by_its_path_runs_no_code_unless_the_user_allows_it(
    engine: tuple[Path, Path], tmp_path: Path
) -> None:
    path, proof = engine
    laboratory = Laboratory(tmp_path)
    written = laboratory.study(study(laboratory, f"rw = 'write', ioengine = 'external:{path}', foo = 1"))
    for action in (("plan", written), ("run", written, "--out", laboratory.out)):
        ended = laboratory.storlab(*action)
        assert ended.status == 2, ended
        assert f"--allow-code {path}" in ended.stderr, ended
        assert not proof.exists()


def test_an_engine_that_is_allowed_is_parsed_confined(engine: tuple[Path, Path], tmp_path: Path) -> None:
    path, proof = engine
    laboratory = Laboratory(tmp_path)
    written = laboratory.study(study(laboratory, f"rw = 'write', ioengine = 'external:{path}', foo = 1"))
    ended = laboratory.storlab("plan", written, "--allow-code", path)
    assert ended.status == 2, ended  # an engine it is not
    assert "--allow-code" not in ended.stderr, ended
    assert not proof.exists()


@needs_root
def test_a_command_writes_to_its_target_and_nowhere_else(precious: str, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    outside = tmp_path / "outside"
    script = (
        f"echo mine >$0/mine && cat $0/mine; echo x >here; mktemp; echo x >{outside}; echo x >/etc/storlab-attack; "
        f"dd if=/dev/zero of={precious} bs=4k count=1; mknod n b 7 0; true"
    )
    more = f"trial = {{ prepare = [['sh', '-c', 'echo x >{outside}; true']] }}"
    ended = laboratory.run(command(laboratory, script, more))
    assert ended.status == 0, ended
    assert not outside.exists()
    assert not Path("/etc/storlab-attack").exists()
    stdout = next(laboratory.out.rglob("stdout")).read_text()
    assert stdout.startswith("mine\n")
    assert laboratory.scratch.name in stdout, "mktemp has a folder that may be written to"
    assert not laboratory.leftovers()


@needs_root
def test_a_command_that_is_unconfined_writes_where_its_user_may_and_the_report_says_so(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    outside = tmp_path / "outside"
    ended = laboratory.run(command(laboratory, f"echo x >{outside}"), "--unconfined")
    assert ended.status == 0, ended
    assert outside.exists()
    assert "were not confined" in ended.stdout, ended


@needs_root
def test_a_command_that_could_not_write_is_explained(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    ended = laboratory.run(command(laboratory, "set -e; echo x >/etc/storlab-attack"))
    assert ended.status == 3, ended
    assert "may write only to its target and its own folder" in ended.stdout, ended


def test_five_hundred_levels_are_parsed_by_one_fio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: a process a level took 45 s for 250."""
    loads = [FioWorkload.model_validate({"rw": "write", "size": f"{number}k"}) for number in range(4, 504)]
    asked: list[str] = []
    run = Node.run

    async def counting(node: Node, argv: Sequence[str], **options: Any) -> Exit:
        asked.append(argv[1])
        return await run(node, argv, **options)

    async def look() -> None:
        async with local_node("host") as node:
            assert await FioWorkload.unchecked(node.confined(Confinement()), loads) == []
            assert asked == ["--parse-only"]
            loads[317] = FioWorkload.model_validate({"rw": "sideways"})
            assert await FioWorkload.unchecked(node, loads) == [loads[317]]
            assert len(asked) < 25

    monkeypatch.setattr(Node, "run", counting)
    asyncio.run(look())


def test_plan_runs_no_program_of_the_studys(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    (tmp_path / "data").mkdir()
    program, proof = tmp_path / "program", tmp_path / "proof"
    program.write_text(f"#!/bin/sh\ntouch {proof}\n")
    program.chmod(0o755)
    head = HEAD.format(primary="elapsed", folder=tmp_path, more=f'trial = {{ prepare = [["{program}"]] }}')
    written = laboratory.study(f'{head}command = {{ argv = ["{program}", "x"], prepare = ["{program}", "y"] }}\n')
    ended = laboratory.storlab("plan", written)
    assert ended.status == 0, ended
    assert f"{program} x" in ended.stdout, "it shows what would be run"
    assert not proof.exists()


def test_a_fio_that_is_killed_while_a_study_is_planned_is_nobodys_mistake(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "fio").write_text('#!/bin/sh\n[ "$1" = --parse-only ] && kill -KILL $$\nexit 0\n')
    (programs / "fio").chmod(0o755)
    laboratory.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    ended = laboratory.storlab("plan", laboratory.study(study(laboratory, "rw = 'write'")))
    assert ended.status == 1, ended
    assert "fio was killed by SIGKILL" in ended.stderr, ended
    assert "internal error" not in ended.stderr.lower(), ended
