"""Small operations on a node's files, several in one request: ``docs/reference/agent-protocol.md``, ``steps``.

Each would be a program to start otherwise, which takes an emulated guest a tenth of a second. Programs that there is no
way around may be among them, so that they need no round trip of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NoReturn

from storlab.base.errors import DiskFull, NodeError, NodeLost, ProtocolError
from storlab.base.waiting import to_its_end
from storlab.nodes.agent.connection import Connection
from storlab.nodes.agent.protocol import CHUNK, MAX_STEPS, Failed, StepResult, Steps
from storlab.nodes.process import Exit, cannot_run

MAX_CONTENTS = 1024 * 1024  # bytes that the steps of one request may bring
_GRACE = 0.5  # s, for a program among steps that were stopped
_REST = 10.0  # s, for steps that were stopped to end; what hangs in the kernel never does
_MAX_WORDS = 32 * 1024  # characters of a request's steps; a header of it has 64 KiB


@dataclass(frozen=True)
class Step:
    """One operation: its name in the protocol, where, and its further fields. ``data`` is what it writes."""

    do: str
    path: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    data: bytes = b""

    @property
    def brings(self) -> bool:
        return self.do in ("read", "readlink", "names", "contents", "files", "run")

    def as_request(self) -> dict[str, Any]:
        return {"do": self.do, **({} if self.path is None else {"path": self.path}), **self.fields}


def look(path: str) -> Step:
    """What is at a path: a link is not followed."""
    return Step("look", path)


def disk_link(device: int) -> str:
    """The link in sysfs to a disk's folder, by the number that ``look`` gives for a file system on it."""
    return f"/sys/dev/block/{device >> 8 & 0xFFF}:{device & 0xFF | device >> 12 & 0xFFF00}"


def make_directory(path: str, mode: int = 0o755, *, parents: bool = False) -> Step:
    """Make a directory; with ``parents`` as mkdir(1) does, and then ``mode`` does not count."""
    return Step("mkdir", path, {"mode": mode, "parents": parents})


def remove_directory(path: str) -> Step:
    return Step("rmdir", path)


def unlink(path: str) -> Step:
    return Step("unlink", path)


def symlink(path: str, target: str) -> Step:
    return Step("symlink", path, {"target": target})


def read(path: str, limit: int = MAX_CONTENTS) -> Step:
    return Step("read", path, {"limit": limit})


def readlink(path: str) -> Step:
    return Step("readlink", path)


def write(path: str, data: bytes | str) -> Step:
    """Write to a file that is there, such as one of sysfs, in one go."""
    written = data.encode() if isinstance(data, str) else data
    return Step("write", path, {"size": len(written)}, written)


def create(path: str, data: bytes, mode: int = 0o644) -> Step:
    return Step("write", path, {"size": len(data), "create": mode}, data)


def resize(path: str, size: int) -> Step:
    """Give a file this size; one that is not there is made, and takes up nothing yet."""
    return Step("resize", path, {"size": size})


def own(path: str, user: int, group: int) -> Step:
    return Step("own", path, {"user": user, "group": group})


def open_up(path: str) -> Step:
    return Step("open_up", path)


def names(path: str, *, targets: bool = False) -> Step:
    """What is in a directory; with where symbolic links lead."""
    return Step("names", path, {"targets": targets})


def contents(path: str, *, changed: bool = False) -> Step:
    """What the small files in a directory hold, such as the parameters of a kernel's module; see ``Done.targets``.

    With ``changed`` only if somebody may have written to one of them since its agent was last asked so: ``Done.there``.
    """
    return Step("contents", path, {"changed": True} if changed else {})


def files(path: str) -> Step:
    """The regular files in a directory and below it."""
    return Step("files", path)


def owned(path: str, top: str) -> Step:
    """Whether something is there that is Storlab's own; ``top`` is the outermost of its folders on the way."""
    return Step("owned", path, {"top": top})


def remove(path: str, top: str) -> Step:
    """The same, and remove it with all that it holds."""
    return Step("remove", path, {"top": top})


def sync(path: str | None = None) -> Step:
    return Step("sync", path)


def run(argv: Sequence[str], env: Mapping[str, str | None], confine: Mapping[str, Any] | None) -> Step:
    """Run a program, which has to succeed: see ``Node.command``. Its contents are the beginning of what it prints."""
    return Step("run", None, {"argv": list(argv), "env": dict(env), "confine": confine})


@dataclass(frozen=True)
class Done:
    """What came of one step. ``errors``: the beginning of what a program printed to its standard error."""

    step: Step
    result: StepResult
    contents: bytes = b""
    errors: bytes = b""

    @property
    def ok(self) -> bool:
        return self.result.message is None

    @property
    def missing(self) -> bool:
        return self.result.errno == "ENOENT"

    @property
    def there(self) -> bool:
        """Of ``look``: something is there. Of ``owned`` and ``remove``: something was. Of ``contents``: it has them."""
        return self.ok and self.result.found is not False

    @property
    def text(self) -> str:
        """Its contents, without white space around them, as files of sysfs have it; empty where it failed."""
        return self.contents.decode(errors="replace").strip()

    @property
    def entries(self) -> list[str]:
        """Of ``names`` and ``files``: one after the other."""
        return self.contents.decode(errors="replace").split("\0")[:-1]

    @property
    def targets(self) -> dict[str, str]:
        """Of ``names`` with targets: where a link leads, empty where it is none; of ``contents``: what a file holds."""
        return dict(zip(self.entries[::2], self.entries[1::2], strict=False))

    def check(self, node: str) -> Done:
        """This, if it was carried out. Raises ``FileNotFoundError``, ``DiskFull`` or ``NodeError``.

        For a program, what ``Exit.check`` raises.
        """
        if not self.ok:
            self._fail(node)
        return self

    def _fail(self, node: str) -> NoReturn:
        where = self.step.path or self.step.do
        if self.step.do == "run":
            self._fail_as_program(node, tuple(self.step.fields["argv"]))
        if self.missing:
            raise FileNotFoundError(where)
        if self.result.errno == "ENOSPC":
            raise DiskFull(f"no space left on the file system of {where}")
        raise NodeError(f"node {node}: {self.result.message}")

    def _fail_as_program(self, node: str, argv: tuple[str, ...]) -> None:
        code, signal = self.result.code, self.result.signal
        if code is None and signal is None:
            raise cannot_run(node, argv[0], self.result.message or "", self.result.errno)
        timing = None, 0.0, 0.0, 0.0, 0.0, 0, 0  # not known of a step
        Exit(argv, code, signal, False, None, *timing, self.contents, self.errors).check(node)


def requests(steps: Sequence[Step]) -> Iterator[list[Step]]:
    request: list[Step] = []
    words = size = 0
    for step in steps:
        own = len(repr(step.as_request()))
        full = len(request) == MAX_STEPS or words + own > _MAX_WORDS or size + len(step.data) > CHUNK
        if request and full:
            yield request
            request, words, size = [], 0, 0
        request.append(step)
        words, size = words + own, size + len(step.data)
    if request:
        yield request


def match_results(
    request: Sequence[Step], results: Sequence[StepResult], contents: bytes, *, go_on: bool
) -> list[Done]:
    """Results with their steps and contents. Raises ``ProtocolError`` where they can't be those of this request."""
    done: list[Done] = []
    at = 0
    for step, result in zip(request, results, strict=False):
        is_program = step.do == "run"
        size = (result.size or 0) if step.brings and (is_program or result.message is None) else 0
        errors = (result.errors or 0) if is_program else 0
        limit = step.fields.get("limit", MAX_CONTENTS)
        if size + errors > min(limit, len(contents) - at):
            raise ProtocolError("its agent sent other contents than its steps were to bring")
        if is_program and (result.message is None) != (result.code == 0 and result.errno is None):
            raise ProtocolError("its agent contradicts itself on how a program ended")
        done.append(Done(step, result, contents[at : at + size], contents[at + size : at + size + errors]))
        at += size + errors
    ended = done[-1].result.errno == "ECANCELED" if go_on and done else bool(done) and not done[-1].ok
    short = len(results) < len(request) and not ended
    if len(results) > len(request) or short or at != len(contents):
        raise ProtocolError("its agent sent other results than those of the steps that it was asked for")
    if not go_on and any(not each.ok for each in done[:-1]):
        raise ProtocolError("its agent went on after a step that failed")
    return done


async def carried_out(connection: Connection, request: Sequence[Step], *, go_on: bool) -> list[Done]:
    """Have an agent carry out what fits into one request. A cancelled caller stops it, and waits until it is at rest.

    Raises ``NodeError`` where the agent refuses the request.
    """
    identity = connection.next_id()
    asking = asyncio.create_task(_ask(connection, identity, request, go_on))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        await to_its_end(_stop(connection, identity, asking))
        raise


async def _ask(connection: Connection, identity: int, request: Sequence[Step], go_on: bool) -> list[Done]:
    data = b"".join(step.data for step in request)
    fields = {"steps": [step.as_request() for step in request], "go_on": go_on}
    async with aclosing(connection.request("steps", data, identity, **fields)) as answers:
        async for answer in answers:
            if isinstance(answer.event, Failed):
                raise NodeError(f"steps: {answer.event.message}")
            assert isinstance(answer.event, Steps), "the connection lets no other event through"
            try:
                return match_results(request, answer.event.results, answer.payload, go_on=go_on)
            except ProtocolError as error:
                raise connection.give_up(str(error)) from None
    raise AssertionError("a request has a final event")


async def _stop(connection: Connection, identity: int, asking: asyncio.Task[list[Done]]) -> None:
    try:
        async with asyncio.timeout(max(_REST, connection.patience)):
            await connection.stop(identity, grace=_GRACE)
            await asyncio.wait([asking])
    except TimeoutError:
        connection.give_up("what it does to files can't be stopped: it hangs in the kernel")
    except NodeLost:
        pass
    if asking.done() and not asking.cancelled():
        asking.exception()  # seen
