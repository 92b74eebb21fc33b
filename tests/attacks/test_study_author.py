"""What the author of a study may try on whoever plans or runs it: by odd files, numbers, fio's options, commands."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from attacks.odd_files import KINDS, bounded, lay
from laboratory import COMMAND, Ended, Laboratory
from laboratory.devices import new_device, sh
from laboratory.samples import sample
from laboratory.studies import DIRECTORY, directory
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Confinement, Exit, Node
from storlab.workloads.fio.workload import FioWorkload
from study.program import Ran, call

root = pytest.mark.needs("root")


def in_data(lab: Laboratory, load: str, trial: str = "") -> str:
    """One load in a folder of the user's."""
    (lab.folder / "data").mkdir(exist_ok=True)
    return directory(load, trial=trial, stack=f'[{{ layer = "directory", path = "{lab.folder}/data" }}]')


def study(lab: Laboratory, options: str) -> str:
    """One load by fio."""
    return in_data(lab, f"fio = {{ {options} }}")


def command(lab: Laboratory, script: str, trial: str = "") -> str:
    """One command of a shell, which has the target as ``$0``."""
    return in_data(lab, f"command = {{ argv = ['sh', '-c', '''{script}''', '{{target}}'] }}", trial)


def refused(ran: Ran | Ended, *words: str) -> None:
    output, message = (ran.stdout, ran.stderr) if isinstance(ran, Ended) else (ran.output, ran.message)
    assert (ran.status, output) == (2, ""), ran
    assert "internal error" not in message and "Traceback" not in message
    for word in words:
        assert word in message, message


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[str]:
    """A loop device with a file system, that no study names."""
    with new_device(tmp_path / "precious.img", 64 * 1024**2) as device:
        sh("mkfs.ext4", "-q", device.path)
        before = device.checksum()
        yield device.path
        assert device.checksum() == before, "it was written to"


ASTRAY = json.loads(sample(__file__, "cases/fio-astray.json"))
OPTIONS = ASTRAY["options"] | {f'description = "{"x" * 5000}"': "more than 4000 bytes"}
JOB_FILES = ASTRAY["job files"] | {f"[a]\ndescription={'x' * 8179}filename=/dev/sda\n": "more than 4000 bytes"}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option[:30])
def test_an_option_of_fio_that_could_lead_away_is_refused(option: str, lab: Laboratory) -> None:
    ended = lab.storlab("plan", lab.study(study(lab, f"rw = 'write', {option}")))
    refused(ended, OPTIONS[option])
    assert any(word in ended.stderr for word in (option.split()[0], "jobs", "fio")), ended


@pytest.mark.parametrize("lines", JOB_FILES, ids=lambda lines: lines.split("\n")[1][:20])
def test_a_job_file_that_could_lead_away_is_refused(lines: str, lab: Laboratory) -> None:
    (lab.folder / "x.fio").write_text(lines)
    refused(lab.storlab("plan", lab.study(study(lab, "job_file = 'x.fio'"))), JOB_FILES[lines])


@root
def test_a_trace_that_opens_a_device_does_not_reach_it(precious: str, lab: Laboratory) -> None:
    trace = lab.folder / "trace"
    actions = (" add", " open", " write 0 65536", " close")
    trace.write_text("fio version 2 iolog\n" + "".join(f"{precious}{action}\n" for action in actions))
    lab.run(study(lab, f"read_iolog = '{trace}', replay_redirect = '{{target}}/redirected', size = '1M'"))
    assert not lab.leftovers()


EVIL = r"""
#include <stdio.h>
__attribute__((constructor)) static void run(void) { FILE *f = fopen("%s", "w"); if (f) fclose(f); }
"""


def test_an_engine_by_its_path_runs_no_code_unless_the_user_allows_it_and_is_confined_then(lab: Laboratory) -> None:
    """An engine for fio that makes a file when it is loaded."""
    if shutil.which("gcc") is None:
        pytest.fail("needs gcc, which the base toolchain has")
    source, path, proof = lab.folder / "evil.c", lab.folder / "evil.so", lab.folder / "proof"
    source.write_text(EVIL % proof)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source], check=True)
    written = lab.study(study(lab, f"rw = 'write', ioengine = 'external:{path}'"))
    for action in (("plan", written), ("run", written, "--out", lab.out)):
        refused(lab.storlab(*action, trusted=False), f"--allow code={path}")
        assert not proof.exists()
    ended = lab.storlab("run", written, "--out", lab.out)
    assert ended.status == 3, ended  # an engine it is not
    assert "--allow" not in ended.stderr, ended
    assert lab.records()[0].status == "failed" and not proof.exists()


@root
def test_a_command_writes_to_its_target_and_nowhere_else(precious: str, lab: Laboratory) -> None:
    outside = lab.folder / "outside"
    script = (
        f"echo mine >$0/mine && cat $0/mine; echo x >here; mktemp; echo x >{outside}; echo x >/etc/storlab-attack; "
        f"dd if=/dev/zero of={precious} bs=4k count=1; mknod n b 7 0; true"
    )
    ended = lab.run(command(lab, script, f"prepare = [['sh', '-c', 'echo x >{outside}; true']]"))
    assert ended.status == 0, ended
    assert not outside.exists() and not Path("/etc/storlab-attack").exists()
    stdout = next(lab.out.rglob("stdout")).read_text()
    assert stdout.startswith("mine\n")
    assert lab.scratch.name in stdout, "mktemp has a folder that may be written to"
    assert not lab.leftovers()


@root
def test_what_could_not_be_written_is_explained_and_an_unconfined_command_is_reported(lab: Laboratory) -> None:
    ended = lab.run(command(lab, "set -e; echo x >/etc/storlab-attack"))
    assert ended.status == 3, ended
    assert "may write only to its target and its own folder" in ended.stdout, ended
    outside = lab.folder / "outside"
    again = lab.study(command(lab, f"echo x >{outside}"))
    ended = lab.storlab("run", again, "--out", lab.folder / "again", "--unconfined")
    assert ended.status == 0, ended
    assert outside.exists() and "were not confined" in ended.stdout, ended


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


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_plan_runs_no_program_of_the_studys(lab: Laboratory) -> None:
    proof = lab.folder / "proof"
    named = program(lab.folder / "data" / "program", f"touch {proof}")
    load = f'command = {{ argv = ["{named}", "x"], prepare = ["{named}", "y"] }}'
    ended = lab.storlab("plan", lab.study(in_data(lab, load, f'prepare = [["{named}"]]')))
    assert ended.status == 0, ended
    assert f"{named} x" in ended.stdout, "it shows what would be run"
    assert not proof.exists()


def test_a_fio_that_is_killed_while_a_study_is_planned_is_nobodys_mistake(lab: Laboratory) -> None:
    fio = program(lab.folder / "bin" / "fio", '[ "$1" = --parse-only ] && kill -KILL $$\nexit 0')
    lab.environment["PATH"] = f"{fio.parent}:{os.environ['PATH']}"
    ended = lab.storlab("plan", lab.study(study(lab, "rw = 'write'")))
    assert ended.status == 1, ended
    assert "fio was killed by SIGKILL" in ended.stderr, ended
    assert "internal error" not in ended.stderr.lower(), ended


PLAIN = sample(__file__, "cases/plain.toml")
OF_A_JOB_FILE = PLAIN.replace("elapsed", "bandwidth").replace(
    'command = { argv = ["true"] }', 'fio = { job_file = "job.fio" }'
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_a_job_file_or_a_file_to_import_that_is_none_is_refused_at_once(kind: str, here: Path) -> None:
    lay(kind, here / "odd.toml")
    for command in ("plan", "run", "shell"):
        with bounded():
            refused(call(command, "odd.toml"), "odd.toml")
    (here / "study.toml").write_text(OF_A_JOB_FILE)
    lay(kind, here / "job.fio")
    with bounded():
        refused(call("plan", "study.toml"), "job.fio")
    for tool in ("csv", "fio", "sysbench", "bonnie", "blkalgn", "pcap", "virtiofs-tests"):
        with bounded():
            refused(call("import", tool, "odd.toml", "--out", "run"), "odd.toml")
        assert not (here / "run").exists()


def test_a_study_that_a_shell_writes_into_a_pipe_is_read(here: Path) -> None:
    (here / "true.toml").write_text(PLAIN)
    argv = ["bash", "-c", f"{' '.join(COMMAND)} plan <(cat true.toml)"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert ran.returncode == 0, ran.stderr


def test_the_file_of_a_study_named_by_a_job_is_no_terminal_of_whoever_plans_it(here: Path) -> None:
    (here / "study.toml").write_text(OF_A_JOB_FILE.replace("job.fio", "/dev/stdin"))
    ours, theirs = os.openpty()
    try:
        argv = [sys.executable, "-m", "storlab.cli.main", "plan", "study.toml"]
        ran = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert ran.returncode == 2 and "/dev/stdin" in ran.stderr


ABSURD = ("9" * 400, "9" * 5000, "-" + "9" * 400, "1e400", "9" * 400 + "%", "±" + "9" * 400 + "%", "9" * 400 + "s")
NUMBERS = (
    "repeat.until", "repeat.min", "repeat.max", "confidence", "trial.warm_up", "trial.timeout", "trial.settle.wait",
    "stack.0.size", "workload.load.command.timeout", "schema", "nodes.client.count", "nodes.client.memory",
)  # fmt: skip


@pytest.mark.parametrize("key", NUMBERS)
def test_an_absurd_number_is_refused_in_one_short_sentence(key: str, here: Path) -> None:
    (here / "study.toml").write_text(PLAIN)
    for absurd in ABSURD:
        for written in (absurd, f'"{absurd}"'):
            with bounded():
                ran = call("plan", "study.toml", "--set", f"{key}={written}")
            refused(ran)
            assert len(ran.message.replace(absurd, "").replace(absurd[:60], "")) < 1500


ODD = "/x\\u0000y"
LOAD = 'command = { argv = ["true"] }'
PLACES = {
    "path": (f'[{{ layer = "device", path = "{ODD}" }}]', LOAD),
    "wipe": (f'[{{ layer = "device", path = "/dev/x", wipe = "{ODD}" }}]', LOAD),
    "copy": (f'[{{ layer = "file", copy = "{ODD}" }}, {{ layer = "loop" }}]', LOAD),
    "directory": (f'[{{ layer = "directory", path = "{ODD}" }}]', LOAD),
    "cwd": (DIRECTORY, f'command = {{ argv = ["true"], cwd = "{ODD}" }}'),
    "argv": (DIRECTORY, f'command = {{ argv = ["{ODD}"] }}'),
    "kernel": (None, f'{LOAD}\n[nodes.vm]\nkind = "vm"\nkernel = "{ODD}"\nmodules = "/lib"\nstack = {DIRECTORY}'),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_nul_in_a_path_is_the_users_mistake_and_its_key_is_named(lab: Laboratory, place: str) -> None:
    """No kernel takes such a path."""
    stack, load = PLACES[place]
    text = f"{f'stack = {stack}' if stack else ''}\n[workload.load]\n{load}"
    refused(lab.storlab("plan", lab.study(text)), "NUL", place.replace("directory", "path"))


@pytest.mark.parametrize("control", ["\\n", "\\t", "\\u001b[2J", "\\u007f", "\\u202e"])
def test_other_control_characters_in_a_path_lead_to_no_traceback(lab: Laboratory, control: str) -> None:
    text = f'stack = [{{ layer = "directory", path = "/x{control}y" }}]\n[workload.load]\n{LOAD}'
    refused(lab.storlab("plan", lab.study(text)), "there is no directory")
