"""What is made once for several that stand on the same foundation: base images."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from storlab.nodes.waiting import to_its_end

T = TypeVar("T")


@dataclass
class _Making:
    task: asyncio.Task[Any]
    waiting: int = 0


@dataclass
class Shared:
    """One for each foundation. ``register_undo`` journals what is undone together with the foundation itself."""

    register_undo: Callable[[str, Mapping[str, Any]], Awaitable[None]] | None = None
    _made: dict[str, _Making] = field(default_factory=dict)

    async def once(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        """The result of the first call with this key. What failed is tried again by whoever asks next.

        It is stopped where nobody waits for it any more, and has come to rest when the last one's cancellation goes on.
        """
        making = self._made.get(key)
        if making is None:
            making = self._made[key] = _Making(asyncio.create_task(_awaited(make), name=key))
        making.waiting += 1
        try:
            result: T = await asyncio.shield(making.task)
            return result
        finally:
            making.waiting -= 1
            if not making.waiting and not making.task.done():
                making.task.cancel()
                await to_its_end(_rest(making.task))
            failed = making.task.done() and (making.task.cancelled() or making.task.exception() is not None)
            if failed and self._made.get(key) is making:
                del self._made[key]

    def forget(self, key: str) -> None:
        """Let the next one who asks make it again."""
        self._made.pop(key, None)


async def _awaited(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


async def _rest(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
