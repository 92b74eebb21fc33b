"""A session: what its nodes leave behind in the event loop."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from storlab.run.session import open_session


async def _leave(error: Exception) -> None:
    async with open_session("20260101-000000-abcd"):
        future = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        del future
        gc.collect()


def test_a_connection_that_breaks_while_it_is_closed_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        asyncio.run(_leave(ConnectionResetError(104, "Connection reset by peer")))
    assert caplog.records == []


def test_any_other_error_that_nobody_waited_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        asyncio.run(_leave(ValueError("a mistake")))
    assert "never retrieved" in caplog.text


def test_which_versions_programs_are_is_asked_for_the_records_and_not_for_a_plan() -> None:
    async def look() -> None:
        async with open_session("20260101-000000-abcd") as session:
            assert session.facts["host"]["tools"] == {}
            await session.ask_versions()
            assert session.facts["host"]["tools"]["mount"]["version"].startswith("mount from util-linux")

    asyncio.run(look())
