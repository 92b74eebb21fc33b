"""Programs as layers: a small one in Perl is started, watched and stopped, in all the ways that go wrong."""

from __future__ import annotations

import asyncio
import getpass
import os
import pwd
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory import wait_until
from laboratory.samples import sample
from storlab.base.errors import CommandFailed, Killed, StorlabError, TimedOut, TrialError, Unsupported
from storlab.layers.base import LayerContext
from storlab.layers.resources import Dir, Server
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.layers.server.running import ServerLog
from storlab.nodes.kinds.local import local_node
from storlab.run.recovery.undoing import undo_table

from .sites import RUN, Ground, entered, ground_in

SCRIPT = sample(__file__, "cases/server.pl")


class SmallServer(ServerLayer):
    """Answers on a socket, in some way."""

    layer: Literal["small"] = "small"
    how: Literal["well", "dies", "killed", "silent", "deaf", "escapes"] = "well"

    takes: ClassVar = (Dir,)
    gives: ClassVar = Server
    program: ClassVar = "perl"
    stop_signal: ClassVar = "SIGINT"
    start_patience: ClassVar = 10.0
    stop_patience: ClassVar = 5.0

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        return {"config": f"data = {server.data}\n"}

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.program, "-e", SCRIPT, self.how, server.socket]

    async def answers(self, server: ServerContext) -> bool:
        return (await server.node.run(["test", "-S", server.socket], check=False)).ok

    async def resource(self, server: ServerContext) -> Server:
        return Server(server.node.name, "small", socket=server.socket)


class Impatient(SmallServer):
    """Waits for nothing."""

    start_patience: ClassVar = 3.0
    stop_patience: ClassVar = 0.3


class Unprivileged(SmallServer):
    """Refuses root, let us say."""

    users: ClassVar = ("no-such-user-here", "nobody")


class Nobodys(SmallServer):
    """Would run as somebody who isn't there."""

    users: ClassVar = ("no-such-user-here", "nor-this-one")


@dataclass
class Watched:
    """A ground, a directory, and records: what one server at a time is set up with."""

    ground: Ground
    folder: Path
    lost: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def context(self) -> LayerContext:
        return replace(
            self.ground.context(2, owner="vm-1"),
            records=self.folder / "records",
            notify_lost=lambda reason, tail: self.lost.append((reason, tail)),
            warn=self.warnings.append,
        )

    async def until_lost(self) -> None:
        await asyncio.to_thread(wait_until, lambda: bool(self.lost), 5.0)

    async def set_up(self, layer: ServerLayer) -> Server:
        server = await layer.set_up(Dir("host", str(self.directory)), self.context())
        assert isinstance(server, Server)
        return server

    @property
    def directory(self) -> Path:
        return self.folder / f"storlab-{RUN}" / "mnt"

    def log(self) -> list[tuple[float, str]]:
        lines = (self.folder / "records" / "2-vm-1-small.log").read_text().splitlines()
        return [(float(line.partition(" ")[0]), line.partition(" ")[2]) for line in lines]

    def processes(self) -> list[int]:
        """Those of the server, wherever they are."""
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if self._is_mine(path)]

    def _is_mine(self, path: Path) -> bool:
        try:
            return path.read_bytes().split(b"\0")[-2:-1] == [f"{self.ground.scratch}/2-vm-1-small/socket".encode()]
        except OSError:
            return False


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Watched]:
    async with ground_in(folder) as ground:
        made = Watched(ground, folder)
        made.directory.mkdir()
        yield made
        await ground.tear_down()
        assert list(made.directory.iterdir()) == []
        assert made.processes() == []


@pytest.fixture
def here(runner: asyncio.Runner, short_path: Path) -> Iterator[Watched]:
    """One server at a time, in a short path."""
    with entered(runner, watched(short_path)) as here:
        yield here


def say(server: Server, word: bytes) -> None:
    assert server.socket is not None
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(server.socket)
        client.sendall(word)


async def test_a_server_has_folders_a_log_with_times_and_a_kept_configuration(here: Watched, short_path: Path) -> None:
    before = time.monotonic()
    server = await here.set_up(SmallServer())
    data = f"{here.directory}/small"
    assert Path(data).stat().st_mode & 0o777 == 0o700
    assert (short_path / "records" / "2-vm-1-config").read_text() == f"data = {data}\n"
    assert server.words() == {"target": server.socket, "socket": server.socket}
    (pid,) = here.processes()
    assert await here.ground.tear_down() == [f"stopped perl (process {pid})"]
    said = [text for _, text in here.log()]
    assert said == [
        f"as {getpass.getuser()} in {here.ground.scratch}/2-vm-1-small",
        f"configured: data = {data}",
        "readybye",
    ]
    times = [at for at, _ in here.log()]
    assert before <= times[0] <= times[1] <= times[2] <= time.monotonic()
    assert (here.lost, here.warnings) == ([], [])


@pytest.mark.parametrize(
    ("layer", "error", "said"),
    [
        (SmallServer(how="dies"), CommandFailed, "perl ended with status 2: error: there is no such thing as this$"),
        (SmallServer(how="killed"), Killed, "perl was killed by SIGKILL"),
        (Impatient(how="silent"), TimedOut, "perl did not answer within 3 s: configured: data = "),
    ],
    ids=["dies", "killed", "silent"],
)
async def test_a_server_that_does_not_start_fails_with_its_own_last_line(
    here: Watched, layer: SmallServer, error: type[TrialError], said: str
) -> None:
    assert not issubclass(Killed, CommandFailed), "or a power cut would be blamed for it"
    with pytest.raises(error, match=f"node host: {said}") as failed:
        await here.set_up(layer)
    assert here.lost == [] and here.processes() == []
    assert layer.how != "dies" or "configured: data" in failed.value.detail


async def test_a_server_that_ends_in_use_is_reported_at_once_with_its_last_lines(here: Watched) -> None:
    server = await here.set_up(SmallServer())
    say(server, b"die")
    await here.until_lost()
    ((reason, tail),) = here.lost
    assert reason == "node host: perl ended with status 3: out of luck"
    assert tail.splitlines()[-2:] == ["ready", "out of luck"]
    assert await here.ground.tear_down() == [f"removed {here.ground.scratch}/2-vm-1-small"]
    assert len(here.lost) == 1


async def test_a_server_that_is_killed_in_use_is_reported_by_the_signal(here: Watched) -> None:
    await here.set_up(SmallServer())
    (pid,) = here.processes()
    os.kill(pid, signal.SIGKILL)
    await here.until_lost()
    assert here.lost[0][0] == "node host: perl was killed by SIGKILL: ready"


async def test_a_server_that_is_deaf_to_its_signal_is_killed_and_that_is_a_warning(here: Watched) -> None:
    await here.set_up(Impatient(how="deaf"))
    (pid,) = here.processes()
    did = await here.ground.tear_down()
    assert did == [f"killed perl (process {pid}), which had not ended 0.3 s after SIGINT"]
    (warning,) = here.warnings
    assert (warning, here.lost) == ("node host: perl had to be killed", [])


@pytest.mark.needs("root")
async def test_a_server_that_refuses_root_runs_as_the_first_user_that_exists(here: Watched, short_path: Path) -> None:
    short_path.chmod(0o711)  # what Storlab did not make, it does not open
    Path(f"{short_path}/storlab-{RUN}").chmod(0o700)
    await here.set_up(Unprivileged())
    (pid,) = here.processes()
    assert Path(f"/proc/{pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert Path(here.directory, "small").owner() == "nobody"
    assert here.log()[0][1] == f"as nobody in {here.ground.scratch}/2-vm-1-small"


@pytest.mark.needs("root")
async def test_a_user_who_can_not_reach_its_folder_is_told_the_remedy(here: Watched, short_path: Path) -> None:
    short_path.chmod(0o700)
    with pytest.raises(Unsupported, match=r"who can't reach .*: set scratch to a folder that everybody may pass"):
        await here.set_up(Unprivileged())
    with pytest.raises(Unsupported, match=r"node host has no user no-such-user-here nor nor-this-one"):
        await here.set_up(Nobodys())


def guard_of(agent: int) -> int:
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    (guard,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "storlab-guard\n")
    return int(guard)


@pytest.mark.needs("root")
async def test_what_an_agent_left_that_was_killed_is_found_by_its_cgroup_and_ended(here: Watched) -> None:
    """The program has shed the signal of its parent's death, as one does that changes its user."""
    try:
        async with local_node("other", cgroup=f"storlab-{RUN}.{os.getpid()}-other") as other:
            here.ground.node, mine = other, here.ground.node
            await here.set_up(SmallServer(how="escapes"))
            assert other.pid is not None
            for pid in (guard_of(other.pid), other.pid):
                os.kill(pid, signal.SIGKILL)
            await other.connection.gone.wait()
    finally:
        here.ground.node = mine
    (pid,) = here.processes()
    cgroup = Path(f"/proc/{pid}/cgroup").read_text()
    assert f"storlab-{RUN}" in cgroup
    names = {line.rsplit("/", 1)[1] for line in cgroup.splitlines() if f"storlab-{RUN}" in line}
    assert await here.ground.tear_down() == ["killed perl, which its agent had left"]
    assert wait_until(lambda: not here.processes())
    left = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if names & {*folder.split("/")}]
    assert left == []  # of its own: others have servers of this run's name at the same time
    for folder in [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if folder.endswith(f"{os.getpid()}-other")]:
        Path(folder).rmdir()  # of the agent, which nobody names here
    assert here.lost == []  # that the node is lost is known by itself


async def test_what_is_not_storlabs_is_not_ended_and_not_removed(ground: Ground, short_path: Path) -> None:
    ours, theirs = short_path / f"storlab-{RUN}" / "host" / "2-small", short_path / "theirs"
    theirs.mkdir()
    arguments: dict[str, Any] = {
        "name": f"storlab-{RUN}-0123",
        "program": "sleep",
        "signal": "SIGTERM",
        "patience": 1.0,
    }
    arguments["folders"] = [str(ours)]
    process = await ground.node.start(["sleep", "60"], name="other-0123")
    names = ("other-0123", "*", f"storlab-{RUN}-0123/../x")
    folders = ([str(ours), str(theirs)], [f"{ours}/../../../theirs"])
    for key, wrong in (*(("name", name) for name in names), *(("folders", each) for each in folders)):
        with pytest.raises(StorlabError, match="left alone"):
            await undo_table()["server.stop"].function(ground.node, **{**arguments, key: wrong})
    assert theirs.exists()
    assert await undo_table()["server.stop"].function(ground.node, **arguments) is None
    assert process.ended is None
    await process.end()


LINES = st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b" ").replace(b"\r", b" ")), max_size=9)


@given(lines=LINES, rest=st.sampled_from([b"", b"cut off"]), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_however_output_is_cut_its_log_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], rest: bytes, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    whole = b"".join(line + b"\n" for line in lines) + rest
    log = ServerLog(path)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    starts = []
    for number, (begin, end) in enumerate(pairwise(places)):
        log.take(whole[begin:end], float(number))
        starts += [number] * (end - begin)
    log.close()
    written = [line.partition(b" ") for line in path.read_bytes().split(b"\n")[:-1]]
    assert [line for _, _, line in written] == [*lines, *([rest] if rest else [])]
    firsts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(written))]
    assert [float(at) for at, _, _ in written] == [starts[first] for first in firsts]


def test_a_line_without_an_end_is_cut_and_not_kept_in_memory() -> None:
    log = ServerLog(None)
    for number in range(100):
        log.take(b"x" * 4096, float(number))
    log.take(b"\nthe end", 100.0)
    assert log.lines[-1] == "the end"
    assert max(len(line) for line in log.lines) < 100_000
    assert len(log.tail) >= 100 * 4096
