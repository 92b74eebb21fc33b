"""``storlab trace --profile``: what it refuses, what it shows, and the files that it writes."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from probes.test_profile import seen
from storlab.cli.trace.profile_view import ProfileView
from storlab.cli.trace.run import Interruptible, tracing
from study.program import call, program


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--disk", "vda"], "--profile samples CPUs and takes no --disk"),
        (["--interval", "1"], "--profile samples CPUs and takes no --interval"),
        (["--locks"], "--profile samples CPUs and takes no --locks"),
        (["--out", "x.csv"], "is one of .folded, .svg, .png, .json"),
    ],
)
def test_what_does_not_belong_to_it_is_refused(words: list[str], said: str) -> None:
    ended = call("trace", "--profile", *words)
    assert ended.status == 2
    assert said in " ".join(ended.message.split())


def test_functions_stand_in_the_order_of_their_own_time() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(ProfileView(seen(), 2))
    shown = out.getvalue().splitlines()
    assert shown[0] == "Where CPUs were   20 samples: 35.0% in the kernel, 15.0% in programs, 50.0% idle"
    assert [line.split()[0] for line in shown[3:5]] == ["zio_execute", "libc.so.6/fill"]
    assert shown[-1] == "… and 1 more; shares are of busy CPU"


@pytest.mark.needs("root")
def test_a_command_is_sampled_and_its_status_passed_on(tmp_path: Path) -> None:
    work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 5"
    ended = program("trace", "--profile", "--out", "x.folded", "--", "sh", "-c", work, folder=tmp_path)
    assert ended.returncode == 5, ended.stderr
    assert "Where CPUs were" in ended.stderr
    stacks = (tmp_path / "x.folded").read_text().splitlines()
    assert any(line.startswith("sh;") for line in stacks)
    assert all(line.rpartition(" ")[2].isdecimal() for line in stacks)


@pytest.mark.needs("root")
def test_as_json_shares_are_of_the_samples(tmp_path: Path) -> None:
    ended = program("trace", "--profile", "--json", "--for", "0.5", "--out", "x.svg", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert sum(found["groups"].values()) == found["samples"]
    assert (found["frequency"], found["lost"]) == (99, 0)
    assert found["samples"] == pytest.approx(0.5 * 99 * found["cpus"], rel=0.5)
    assert all(0 <= each["self"] <= each["total"] <= 1 for each in found["functions"])
    assert (tmp_path / "x.svg").read_text().startswith("<svg")


DEAF = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
print("begun", flush=True)
time.sleep(60)
"""
"""As a tracer that looks up the names of many functions."""


@pytest.mark.parametrize(("signals", "ends"), [([signal.SIGINT] * 2, True), ([signal.SIGHUP, signal.SIGTERM], False)])
def test_a_second_ctrl_c_does_not_wait_for_names(signals: list[signal.Signals], ends: bool) -> None:
    async def interrupted() -> bool:
        async with tracing([sys.executable, "-c", DEAF], lambda chunk, _: chunk.split()) as tracer:
            work = Interruptible()
            work.tracer = tracer
            assert await tracer.lines() == [b"begun"]
            for number in signals:
                work.signalled(number)
            try:
                async with asyncio.timeout(5 if ends else 0.3):
                    return await tracer.lines() == []
            except TimeoutError:
                work.signalled(signal.SIGINT)
                return False

    assert asyncio.run(interrupted()) == ends
