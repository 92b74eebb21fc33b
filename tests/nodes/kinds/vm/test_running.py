"""Real guests: one that is a copy of another has a clock, random numbers and disks of its own."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from laboratory.guests import needs_guests
from storlab.images.image import find_image
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.accelerator import qemu_version
from storlab.nodes.kinds.vm.command import Files, GuestSpec
from storlab.nodes.kinds.vm.guest import running_guest
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.kinds.vm.saved import saved_guest
from storlab.nodes.node import Node

# A copy that kept the saved clock would be wrong by OLD at least; a busy machine hands the time over late, by far less.
OLD = 3.0  # s
CLOSE = 1.0  # s


async def clock_error(node: Node) -> float:
    """Seconds by which a guest's clock is wrong at least, by the best of several looks."""
    errors = []
    async with aclosing(node.sample([], 0.05)) as samples:
        for _ in range(5):
            before = time.time()
            sample = await anext(samples)
            errors.append(max(before - sample.realtime - 0.05, sample.realtime - time.time(), 0.0))
    return min(errors)


@needs_guests
def test_two_copies_one_after_the_other_know_what_time_it_is_and_the_agent_is_the_last_to_be_killed() -> None:
    async def look() -> list[tuple[float, str, bool]]:
        image = find_image()
        initrd = initrd_with_agent(image)
        hardware = Hardware.model_validate({"memory": "192M", "accel": "tcg"})
        spec = GuestSpec("vm", hardware, image, initrd, "tcg", qemu=await qemu_version())
        found = []
        with tempfile.TemporaryDirectory(prefix="sl-") as folder:
            async with local_node("host") as host:
                saved = await saved_guest(spec, host, Path(folder), lambda _: None)
                await asyncio.sleep(OLD)
                for number in range(2):
                    files = Files(*(Path(folder) / f"{number}.{kind}" for kind in ("qmp", "agent", "console")))
                    async with running_guest(spec, host, files, saved, lambda _: None) as guest:
                        boot = await guest.node.read_text("/proc/sys/kernel/random/boot_id")
                        agent, own = (f"/proc/{each}/oom_score_adj" for each in (guest.node.pid, "self"))
                        assert int(await guest.node.read_text(agent)) == -900
                        assert int(await guest.node.output("cat", own)) == 0, "and not what it starts"
                        found.append((await clock_error(guest.node), boot, guest.restored))
                    assert guest.process.ended is not None
        return found

    found = asyncio.run(look())
    assert all(restored for _, _, restored in found)
    assert len({boot for _, boot, _ in found}) == 2
    assert max(error for error, _, _ in found) < CLOSE, found
