"""What kernels answer and say in sysfs and configfs: real samples, and rubbish."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from storlab.layers.base import LayerContext
from storlab.layers.block.queue import chosen, parse_queue, sysfs
from storlab.layers.net.initiator import host_uuid, host_word
from storlab.layers.net.nbd import NbdLayer
from storlab.layers.net.nvme import NvmeTcpLayer, parse_instance
from storlab.layers.resources import Disk
from storlab.nodes.kinds.local import local_node


def context(instance: str, run: str = "20260102-030405-abcd") -> LayerContext:
    return cast(LayerContext, SimpleNamespace(run=run, node=SimpleNamespace(instance=instance)))


def test_the_kernel_says_which_controller_it_made() -> None:
    assert parse_instance("instance=12,cntlid=1\n") == 12


@given(st.text())
def test_an_answer_without_a_controller_is_none(text: str) -> None:
    number: Any = parse_instance(text)
    assert number is None or 0 <= number < 100000


def test_of_schedulers_that_in_brackets_is_in_use() -> None:
    assert chosen("none [mq-deadline] kyber\n") == "mq-deadline"
    assert chosen("64\n") == "64"
    assert parse_queue({"scheduler": "[none] mq-deadline"}) == {"scheduler": "none"}


def test_a_disk_with_a_slash_has_another_name_in_sysfs() -> None:
    assert sysfs("etherd/e7.0") == "/sys/class/block/etherd!e7.0"


def test_every_node_of_every_run_has_an_identity_of_its_own_and_keeps_it() -> None:
    other = "20260102-030405-abce"
    contexts = [context("vm-1"), context("vm-2"), context("vm-1", other), context("vm-1~2")]
    assert len({host_uuid(each) for each in contexts}) == 4
    assert len({host_word(each) for each in contexts}) == 4
    assert host_uuid(context("vm-1")) == host_uuid(context("vm-1"))
    assert host_word(context("vm_1 ä")) == "storlab-20260102-030405-abcd:vm-1--"


def test_severing_a_disk_whose_controller_is_gone_does_nothing() -> None:
    layer = NvmeTcpLayer.model_validate({"layer": "nvme-tcp"})

    async def sever() -> None:
        async with local_node("client") as node:
            gone = Disk(node.name, "/dev/nvme98765n1", 1024**2, ours=True)
            await layer.sever(gone, cast(LayerContext, SimpleNamespace(run="20260102-030405-abcd", node=node)))

    asyncio.run(sever())


def test_two_clients_on_one_kernel_never_choose_the_same_device_one_after_the_other() -> None:
    """Both look before either is connected; a device is chosen again once all others were."""
    node = mock.Mock(machine="boot-1", texts=mock.AsyncMock(return_value=[None] * 16))
    layer = NbdLayer.model_validate({"layer": "nbd"})

    async def some(times: int) -> list[str]:
        return await asyncio.gather(*(layer._free(mock.Mock(node=node)) for _ in range(times)))

    names = asyncio.run(some(16))
    assert len(set(names)) == 16 and asyncio.run(some(1)) == names[:1]
