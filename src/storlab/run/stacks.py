"""Stacks that are up: put up through the journal, kept between trials where the study allows it, taken down."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from storlab.layers import stack
from storlab.layers.base import Layer, Site
from storlab.layers.stack import StandingStack
from storlab.nodes.node import Node
from storlab.run.journal import Journal, Pending
from storlab.run.session import Session
from storlab.run.teardown import Teardown, take_down

_Key = tuple[str, str]


class Stacks:
    """All stacks of a run. Each has a scratch folder of its own, named by what it consists of."""

    def __init__(self, session: Session, scratch: Mapping[str, str], journal: Journal) -> None:
        self._session, self._journal = session, journal
        self.scratch = scratch  # node → the run's own folder there
        self._standing: dict[_Key, StandingStack] = {}
        self._entries: dict[_Key, list[Pending]] = {}

    async def get(self, node: Node, layers: Sequence[Layer]) -> StandingStack:
        """The stack on this node, put up unless it is up already."""
        key = _key(node, layers)
        if key not in self._standing:
            self._entries[key] = []
            self._standing[key] = await self._put_up(key, node, layers)
        return self._standing[key]

    async def _put_up(self, key: _Key, node: Node, layers: Sequence[Layer]) -> StandingStack:
        folder = f"{self.scratch[node.name]}/{node.name}-{key[1]}"
        await node.run(["mkdir", "--parents", "--", folder])

        async def will_undo(undo: str, arguments: Mapping[str, Any]) -> None:
            self._entries[key].append(self._journal.will(node.name, undo, arguments))

        return await stack.put_up(layers, lambda position: Site(node, folder, position, self._session.run, will_undo))

    async def take_down(self, node: Node, layers: Sequence[Layer]) -> Teardown:
        """Take down one stack, or what was put up of it before it failed."""
        key = _key(node, layers)
        self._standing.pop(key, None)
        mine = {entry.number for entry in self._entries.pop(key, [])}
        return await take_down(self._journal, self._session, lambda entry: entry.number in mine)


def _key(node: Node, layers: Sequence[Layer]) -> _Key:
    described = orjson.dumps([layer.model_dump(mode="json") for layer in layers])
    return node.name, hashlib.sha256(described).hexdigest()[:12]
