"""How often a script is looked at, and when it is ended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from storlab.run.suite import attempt


@pytest.mark.parametrize(("scale", "look"), [(0.1, 0.01), (1.0, 0.1), (4.0, 0.1)])
def test_a_script_is_looked_at_four_times_within_a_time_out_that_was_shortened(
    scale: float, look: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def rests(process: object, seconds: float) -> bool:
        waits.append(seconds)
        await asyncio.sleep(seconds)
        return False

    async def texts(*paths: str) -> tuple[str, str]:
        return f"usage_usec {len(waits) * 10**6}\n", ""  # it works all the time

    monkeypatch.setattr(attempt, "_rests", rests)
    running: Any = SimpleNamespace(scale=scale, guest=SimpleNamespace(node=SimpleNamespace(texts=texts)))
    process: Any = SimpleNamespace(cgroup="/none")
    output: Any = SimpleNamespace(last=None)
    reason = asyncio.run(attempt._until_time_out(running, 0.4, process, output))
    assert reason is not None and reason.startswith(f"it took longer than {round(0.4 * scale, 1):g} s")
    assert waits == pytest.approx([look] * len(waits))
