"""The programs that serve NBD: how each is called, and what each can't be asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from storlab.layers.resources import Export, File
from storlab.layers.server.nbd_export import NbdExportLayer
from storlab.layers.server.nbd_servers import SERVERS, NbdProgram, Offer, is_listening
from storlab.layers.stack import type_errors

from .sites import parse

FOLDER = "/scratch/1-nbd-export"
TCP = {"type": "inet", "host": "10.213.0.2", "port": "10809"}
UNIX = {"type": "unix", "path": f"{FOLDER}/socket"}


def offer(address: dict[str, str], *, name: str = "vm-1", path: str = "/scratch/disk.img", **keys: Any) -> Offer:
    modes: dict[str, Any] = {"cache": "writeback", "aio": "threads", "discard": True, "shared": 2, **keys}
    return Offer(File("server", path, 2**24), name, address, FOLDER, **modes)


def test_nbdkit_stays_in_the_foreground_and_listens_where_it_is_told() -> None:
    begin = ["nbdkit", "--foreground", f"--pidfile={FOLDER}/pid"]
    end = ["file", "file=/scratch/disk.img"]
    nbdkit = SERVERS["nbdkit"]
    assert nbdkit.command(offer(TCP)) == [*begin, "--ipaddr=10.213.0.2", "--port=10809", *end]
    assert nbdkit.command(offer(UNIX)) == [*begin, f"--unix={FOLDER}/socket", *end]
    assert nbdkit.configuration(offer(TCP)) == {}


def test_nbd_server_has_a_configuration_of_its_own() -> None:
    server = SERVERS["nbd-server"]
    words = ["nbd-server", f"{FOLDER}/nbd-server.conf", f"{FOLDER}/pid"]
    assert server.command(offer(TCP)) == ["bash", f"{FOLDER}/start.sh", *words, "10.213.0.2", "10809"]
    assert server.command(offer(UNIX)) == ["bash", f"{FOLDER}/start.sh", *words, "", ""]
    assert server.configuration(offer(TCP, name=server.name("vm-1")))["nbd-server.conf"] == (
        "[generic]\nallowlist = true\nlistenaddr = 10.213.0.2\nport = 10809\n\n"
        "[disk-vm-1]\nexportname = /scratch/disk.img\nflush = true\nfua = true\nsync = false\ntrim = true\n"
    )
    text = server.configuration(offer(UNIX, path="/a\\b", cache="writethrough", discard=False))["nbd-server.conf"]
    assert text == (
        f"[generic]\nallowlist = true\nunixsock = {FOLDER}/socket\n\n"
        "[vm-1]\nexportname = /a\\\\b\nflush = false\nfua = false\nsync = true\ntrim = false\n"
    )


@pytest.mark.parametrize("server", SERVERS)
def test_each_program_is_what_the_layer_needs_and_has_a_default_that_it_can_do(server: NbdProgram) -> None:
    layer = NbdExportLayer(server=server)
    assert layer.needs().programs == (server,)
    assert layer._cache == ("none" if server == "qemu-nbd" else "writeback")


@pytest.mark.parametrize(
    ("keys", "refusal"),
    [
        (
            {"server": "nbdkit", "cache": "none"},
            'cache = "none": nbdkit works through the page cache, and passes flushes on: write cache = "writeback", or '
            'server = "qemu-nbd"',
        ),
        (
            {"server": "nbd-server", "cache": "directsync"},
            'cache = "directsync": nbd-server works through the page cache, and flushes when it is asked to or after '
            'each write: write cache = "writeback" or "writethrough", or server = "qemu-nbd"',
        ),
        (
            {"server": "nbd-server", "aio": "threads"},
            'aio = "threads": nbd-server has one way alone to read and write: leave aio out, or server = "qemu-nbd"',
        ),
        (
            {"server": "nbdkit", "discard": False},
            'discard = false: nbdkit passes discards on in any case: leave discard out, or server = "qemu-nbd"',
        ),
    ],
)
def test_what_a_program_does_not_have_is_refused_with_what_it_has(keys: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ValidationError) as raised:
        parse([{"layer": "nbd-export", **keys}])
    assert refusal in str(raised.value)


def test_a_file_that_only_qemu_reads_is_refused_below_the_others() -> None:
    image = {"layer": "image-clone", "base": {"size": "16M", "written": "1M"}}
    for server in ("nbdkit", "nbd-server"):
        ((position, message),) = type_errors(parse([image, {"layer": "nbd-export", "server": server}]), [Export])
        assert position == 1
        assert 'gives a qcow2 file: write server = "qemu-nbd", or make it a raw one' in message
    assert type_errors(parse([image, {"layer": "nbd-export"}]), [Export]) == []


SOCKETS = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0200D50A:2A39 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0200D50A:2A3A 0300D50A:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
"""


def test_a_port_is_listened_at_where_a_socket_says_so_and_no_connection() -> None:
    assert [is_listening(SOCKETS, port) for port in (10809, 10810, 10811)] == [True, False, False]


@given(st.text())
def test_no_listing_of_sockets_is_an_exception(text: str) -> None:
    assert is_listening(text, 10809) in (True, False)
