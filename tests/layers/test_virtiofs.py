"""What virtiofsd and the mounts of its share, and of 9p, are asked for: options, and what is refused with a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from storlab.errors import UserError
from storlab.layers.attach.ninep import NinePLayer
from storlab.layers.attach.virtiofs import VirtiofsLayer
from storlab.layers.attach.virtiofsd import VirtiofsdLayer
from storlab.layers.resources import Dir, Share
from storlab.layers.server.base import ServerContext
from storlab.nodes.binding import numactl
from storlab.study.study import parse_study

SERVED = Share("host", "virtiofs", "", 0, "/srv", socket="/run/socket")


def options(**keys: Any) -> list[str]:
    layer = VirtiofsdLayer.model_validate(keys)
    below = Dir("host", "/srv/x")
    return layer._options_of_c(below.path) if layer.implementation == "c" else layer._options(below)


def test_every_default_is_written_out_for_the_one_in_rust() -> None:
    assert options() == [
        "--shared-dir=/srv/x", "--cache=auto", "--sandbox=namespace", "--inode-file-handles=never",
        "--announce-submounts",
    ]  # fmt: skip


def test_every_default_is_written_out_for_the_one_in_c() -> None:
    assert options(implementation="c") == [
        "-f", "-o", "source=/srv/x,cache=auto,sandbox=namespace,no_writeback,no_xattr,no_posix_acl,no_allow_direct_io,"
        "readdirplus,announce_submounts",
    ]  # fmt: skip


def test_the_limit_of_open_files_is_for_both() -> None:
    for implementation in ("rust", "c"):
        layer = VirtiofsdLayer.model_validate({"open_files": 5000, "implementation": implementation, "path": "/bin/d"})
        server = ServerContext(None, Dir("host", "/srv"), "/run/d")  # type: ignore[arg-type]
        assert "--rlimit-nofile=5000" in layer.command(server)


def test_threads_of_the_one_in_c_do_not_ask_for_the_number_of_cpus_which_its_filter_forbids() -> None:
    server = ServerContext(None, Dir("host", "/srv"), "/run/d")  # type: ignore[arg-type]
    for implementation, threads, limited in (("c", 64, True), ("c", 0, False), ("rust", 64, False)):
        keys = {"implementation": implementation, "thread_pool": threads, "path": "/bin/d"}
        words = VirtiofsdLayer.model_validate(keys).command(server)
        assert ("MALLOC_ARENA_MAX=64" in words) == limited, words


def test_chroot_is_refused_to_all_but_root_with_what_to_write() -> None:
    class Asked:
        def __init__(self, uid: int) -> None:
            self.uid = uid
            self.known: dict[str, str] = {}

        async def facts(self, _: object) -> dict[str, int]:
            return {"uid": self.uid}

    for uid, sandbox in ((0, "chroot"), (1000, "namespace"), (1000, "none")):
        asyncio.run(VirtiofsdLayer.model_validate({"sandbox": sandbox}).check_node(Asked(uid)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match='run Storlab as root, or write "namespace" or "none"') as refused:
        asyncio.run(VirtiofsdLayer(sandbox="chroot").check_node(Asked(1000)))  # type: ignore[arg-type]
    assert refused.value.key == ("sandbox",)


def test_bound_to_all_is_bound_to_nothing() -> None:
    layer = VirtiofsdLayer.model_validate({"pin": "all", "numa": "all"})
    assert (layer.pin, layer.numa, numactl(layer.pin, layer.numa)) == (None, None, [])
    bound = VirtiofsdLayer.model_validate({"pin": "0,2-3", "numa": 0})
    words = ["numactl", "--cpunodebind=0", "--membind=0", "--physcpubind=0,2-3", "--"]
    assert numactl(bound.pin, bound.numa) == words


@pytest.mark.parametrize("name", ["none", "never"])
@pytest.mark.parametrize(("implementation", "said"), [("rust", "--cache=never"), ("c", "cache=none")])
def test_no_cache_has_two_names_and_each_implementation_gets_its_own(name: str, implementation: str, said: str) -> None:
    assert said in ",".join(options(cache=name, implementation=implementation))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"posix_acl": True}, "takes xattr = true"),
        ({"allow_mmap": True}, "'auto' maps files anyway"),
        ({"implementation": "c", "inode_file_handles": "prefer"}, "the C daemon can't do that"),
        ({"implementation": "c", "cache": "none", "allow_mmap": True}, "the C daemon can't do that"),
        ({"implementation": "c", "cache": "metadata"}, "the C daemon has auto, always and none"),
        ({"implementation": "c", "sandbox": "none"}, "the C daemon has namespace and chroot"),
    ],
)
def test_what_a_daemon_can_not_do_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        VirtiofsdLayer.model_validate(keys)


def test_a_guest_with_virtiofs_shares_its_memory_and_one_with_9p_need_not() -> None:
    demands = VirtiofsLayer(queue_size=1024, queues=2).demands(SERVED, "disk0")
    assert demands.shared_memory and not demands.cold
    assert demands.devices.chardevs == (("disk0-socket", "/run/socket"),)
    (device,) = demands.devices.devices
    assert (device["queue-size"], device["num-request-queues"], device["tag"]) == (1024, 2, "disk0")
    assert not NinePLayer().demands(Dir("host", "/srv"), "disk0").shared_memory


STUDY = """\
title = "A folder"
primary = "write.bandwidth"

[nodes.vm]
kind = "{kind}"
stack = [{layers}]

[workload.write]
fio = {{ rw = "write", size = "1M" }}
"""
DIRECTORY, DAEMON, MOUNT = (f'{{ layer = "{name}" }}' for name in ("directory", "virtiofsd", "virtiofs"))


@pytest.mark.parametrize(
    ("layers", "kind", "said"),
    [
        ([DIRECTORY, MOUNT], "vm", "layer virtiofs"),
        ([DAEMON, MOUNT], "vm", "layer virtiofsd"),
        ([DIRECTORY, DAEMON, MOUNT], "local", 'write kind = "vm" in \\[nodes.vm\\]'),
        ([DIRECTORY, DAEMON, '{ layer = "nfs" }'], "vm", "crosses the network from other nodes"),
        ([DIRECTORY, '{ layer = "nfs-export" }', MOUNT], "vm", 'write { layer = "nfs" }'),
        ([DIRECTORY, '{ layer = "9p", dax = "always" }'], "vm", "dax"),
        ([DIRECTORY, '{ layer = "9p", msize = "1k" }'], "vm", "msize"),
        ([DIRECTORY, '{ layer = "9p", msize = "1M" }'], "vm", "msize"),
        ([DIRECTORY, '{ layer = "9p", cache = "always" }'], "vm", "cache"),
        ([DIRECTORY, '{ layer = "virtiofsd", cache = "loose" }', MOUNT], "vm", "cache"),
        ([DIRECTORY, '{ layer = "virtiofsd", once = true }', MOUNT], "vm", "serves one node alone"),
        ([DIRECTORY, '{ layer = "virtiofsd", path = "virtiofsd" }', MOUNT], "vm", "path"),
    ],
)
def test_a_share_that_can_not_be_is_refused_when_the_study_is_loaded(layers: list[str], kind: str, said: str) -> None:
    text = STUDY.format(kind=kind, layers=", ".join(layers))
    with pytest.raises(UserError, match=said) as refused:
        parse_study(text.encode(), "study.toml", lambda name: "")
    assert str(refused.value).startswith("study.toml: line 6: "), refused.value


def test_each_guest_has_a_daemon_of_its_own_on_one_directory() -> None:
    text = STUDY.format(kind="vm", layers=", ".join([DIRECTORY, DAEMON, MOUNT])).replace('"vm"\n', '"vm"\ncount = 3\n')
    (cell,) = parse_study(text.encode(), "study.toml", lambda name: "").cells
    (chain,) = cell.chains
    assert chain.shared == 1, "the directory alone stands once"


def test_a_daemon_of_ones_own_that_is_missing_is_no_package_to_install() -> None:
    needs = VirtiofsdLayer(path="/opt/virtiofsd").needs()
    assert (needs.programs, needs.paths) == ((), ("/opt/virtiofsd",))
