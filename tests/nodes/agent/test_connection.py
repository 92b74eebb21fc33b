"""A stream to something that does not behave."""

from __future__ import annotations

import asyncio
import socket

from storlab.nodes.agent.connection import Connection


def test_one_that_was_given_up_is_closed_at_once_though_nobody_reads_what_was_sent() -> None:
    async def close() -> str | None:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            connection = Connection("n", reader, writer)
            writer.write(bytes(64 * 1024 * 1024))  # more than the kernel takes
            connection.give_up("it hangs")
            async with asyncio.timeout(5):
                await connection.close()
            return connection.lost

    assert asyncio.run(close()) == "node n: it hangs"
