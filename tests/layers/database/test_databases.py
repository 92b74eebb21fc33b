"""MariaDB and PostgreSQL for real: made once, unpacked for each trial, with the settings that were asked for."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from layers.sites import Ground, ground_in
from storlab.errors import TrialError, Unsupported
from storlab.layers.database.clients import sql
from storlab.layers.resources import Server

SERVERS = ("mariadb", "postgresql")
DATA = {"tables": 1, "rows": 200}


@asynccontextmanager
async def site() -> AsyncIterator[Ground]:
    """In a folder that the server's user may pass through, whatever becomes of pytest's."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with ground_in(folder) as ground:
            yield ground


async def started(ground: Ground, layer: str, keys: Mapping[str, Any] | None = None) -> tuple[Server, dict[str, Any]]:
    built = await ground.set_up({"layer": "directory"}, {"layer": layer, **(keys or {})})
    assert isinstance(built.resource, Server)
    return built.resource, dict(built.facts[-1])


async def asked(ground: Ground, server: Server, statement: str) -> str:
    return (await ground.node.output(*sql(server, statement))).strip()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "storlab" / "data-sets" / "parts"


@pytest.mark.parametrize("layer", SERVERS)
def test_every_trial_starts_from_the_same_rows_and_what_one_wrote_is_gone(layer: str, cache: Path) -> None:
    async def main() -> None:
        async with site() as ground:
            server, facts = await started(ground, layer, {"data": DATA})
            assert facts["data"] == {**DATA, "seed": 1} and facts["version"][0].isdecimal()
            before = await asked(ground, server, "SELECT sum(k), count(*) FROM sbtest1")
            assert before.split()[1] == "200"
            await asked(ground, server, "DELETE FROM sbtest1")
            did = await ground.tear_down()
            assert any(each.startswith("stopped") for each in did)
            ground.journal.clear()
            (part,) = cache.iterdir()
            made = (part / "data.tar").stat()
            other = {"mariadb": {"doublewrite": False}, "postgresql": {"full_page_writes": False}}[layer]
            server, _ = await started(ground, layer, {"data": DATA, **other})
            assert await asked(ground, server, "SELECT sum(k), count(*) FROM sbtest1") == before
            assert (part / "data.tar").stat().st_mtime_ns == made.st_mtime_ns, "it was not made again"

    asyncio.run(main())


def test_settings_are_what_the_server_says_they_are() -> None:
    async def main() -> None:
        async with site() as ground:
            keys = {"pool": "32M", "doublewrite": False, "settings": {"innodb_io_capacity": 321}}
            _, facts = await started(ground, "mariadb", keys)
            assert facts["innodb_doublewrite"] == "OFF" and facts["innodb_io_capacity"] == "321"
            assert facts["innodb_buffer_pool_size"] == str(32 * 1024**2)
            await ground.tear_down()
            ground.journal.clear()
            keys = {"pool": "32M", "full_page_writes": False, "settings": {"random_page_cost": 1.5}}
            _, facts = await started(ground, "postgresql", keys)
            assert (facts["full_page_writes"], facts["shared_buffers"], facts["random_page_cost"]) == (
                "off",
                "32MB",
                "1.5",
            )

    asyncio.run(main())


@pytest.mark.parametrize(
    ("layer", "settings", "said"),
    [
        ("mariadb", {"no_such_thing": 1}, "unknown variable 'no_such_thing"),
        ("mariadb", {"max_allowed_packet": 1000}, "max_allowed_packet should be 1000, but the server has 1024"),
        ("postgresql", {"no_such_thing": 1}, "no_such_thing"),
        ("postgresql", {"work_mem": "1kB"}, "work_mem"),
    ],
)
def test_a_setting_that_does_not_take_is_named(layer: str, settings: dict[str, Any], said: str) -> None:
    async def main() -> None:
        async with site() as ground:
            with pytest.raises(TrialError, match=said):
                await started(ground, layer, {"settings": settings})

    asyncio.run(main())


@pytest.mark.parametrize("layer", SERVERS)
def test_a_server_that_is_killed_leaves_nothing(layer: str) -> None:
    async def main() -> None:
        async with site() as ground:
            await started(ground, layer)
            (process,) = ground.node.named.values()
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            ended = await process.wait()
            assert ended.signal == "SIGKILL"

    asyncio.run(main())


def test_extents_are_shared_or_that_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with site() as ground:
            (tmp_path / "a").write_bytes(b"a" * 4096)
            shares = await ground.node.run(["cp", "--reflink=always", f"{tmp_path}/a", f"{tmp_path}/b"], check=False)
            if shares.ok:
                await started(ground, "mariadb", {"clone": "reflink"})
            else:
                with pytest.raises(Unsupported, match=r'does not share extents .*: write clone = "copy"'):
                    await started(ground, "mariadb", {"clone": "reflink"})

    asyncio.run(main())
