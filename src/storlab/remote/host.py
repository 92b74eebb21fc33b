"""Storlab on another machine, as this one calls it: jobs are started there, followed, answered and removed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from storlab.base.errors import StorlabError, UserError
from storlab.base.programs import agent_path
from storlab.base.record import RunId, read_record, to_json
from storlab.records.files import write_whole
from storlab.ssh.machine import Machine
from storlab.version import __version__

NAME = "on.json"


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``host``: as its user calls the machine. ``job``: which of its jobs; ``name``: of the run's folder in there."""

    host: str
    job: RunId
    name: str


def read_origin(folder: Path) -> Origin | None:
    """``None`` for a run of this machine. Raises ``RecordsError`` where the file is damaged."""
    try:
        return read_record(folder / NAME, Origin)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_origin(folder: Path, origin: Origin) -> None:
    """Raises ``OSError``."""
    write_whole(folder / NAME, to_json(origin))


# Which Storlab this is: its version, and a checksum of all of its files, since versions stay the same in development.
#
# Both sides of a job must be the same: their records and events are those of one program.

PACKAGE = Path(__file__).resolve().parents[1]
AGENT = "bin/storlab-agent"
"""Below the package, as in a wheel."""
_DIGITS = 12


@cache
def identity() -> str:
    """``0.1.0-3f2a…``: what the folder is called in which it lies on other machines. Raises ``MissingTool``."""
    seen = hashlib.sha256()
    for name, path in own_files():
        data = path.read_bytes()
        seen.update(f"{name} {len(data)}\n".encode())
        seen.update(data)
    return f"{__version__}-{seen.hexdigest()[:_DIGITS]}"


def own_files() -> Iterator[tuple[str, Path]]:
    """Names below the package, and where they lie: in a checkout, the agent is elsewhere."""
    for path in sorted(PACKAGE.rglob("*")):
        name = str(path.relative_to(PACKAGE))
        if path.is_file() and "__pycache__" not in path.parts and name != AGENT:
            yield name, path
    yield AGENT, agent_path()


_PATIENCE = 60.0  # s
PLACE = ".local/share/storlab"
_CALL = f"""
place={PLACE}/$1
shift
cd || exit 1
[ -f "$place/ready" ] || {{ echo '{{"missing":true}}'; exit 0; }}
exec "$place/bin/python" -I -m storlab.remote.there "$@"
"""
_MOST_BROUGHT = 256 * 1024**2  # B: what a job may bring along

K = TypeVar("K")


class Here(msgspec.Struct, frozen=True):
    """Which machine started a job, and which folder or file there each result is to become."""

    machine: str
    places: tuple[str, ...]


class Known(msgspec.Struct, frozen=True):
    """A job there. ``here``: what this machine wrote down about itself when it started it; ``since``: their time."""

    job: str
    command: str
    words: tuple[str, ...]
    results: tuple[str, ...]
    here: Here
    since: str
    alive: bool
    status: int | None
    fetched: bool
    work: str | None = None


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command to run there. ``results``: folders and files that it leaves, to be fetched, by their names in its
    working directory. ``work``: the job in whose directory it runs, if not in one of its own.
    """

    job: str
    command: str
    words: tuple[str, ...]
    results: tuple[str, ...]
    here: Here
    environment: dict[str, str] = {}
    tied: bool = False
    work: str | None = None


@dataclass(frozen=True)
class Brought:
    """A file that goes along."""

    data: bytes
    executable: bool = False


class Started(msgspec.Struct, frozen=True):
    """The job; or the one that is ``busy`` in the same place already."""

    job: str = ""
    busy: str = ""


@dataclass(frozen=True)
class Host:
    """One machine that has this Storlab, or should. ``name`` is what its user calls it."""

    name: str
    machine: Machine

    def argv(self, *words: str) -> list[str]:
        return self.machine.argv("sh", "-c", _CALL, "storlab", identity(), *words, marked=True)

    async def start(self, request: Request, files: Mapping[str, Brought]) -> Started:
        """Bring ``files`` into the job's working directory and start it. Raises ``SshError``, ``UserError``."""
        if sum(len(file.data) for file in files.values()) > _MOST_BROUGHT:
            raise UserError(f"what the command takes along is more than {_MOST_BROUGHT >> 20} MiB")
        sent = [msgspec.json.encode(request) + b"\n"]
        for name, file in files.items():
            header = {"file": name, "size": len(file.data), **({"executable": True} if file.executable else {})}
            sent += [json.dumps(header).encode() + b"\n", file.data]
        return await self._ask(["start"], Started, b"".join([*sent, b'{"go": true}\n']))

    async def jobs(self) -> list[Known]:
        return await self._ask(["jobs"], list[Known])

    async def send_signal(self, job: str, name: str) -> None:
        """``INT`` or ``TERM``, to the job's command."""
        await self._ask(["signal", job, name], dict[str, bool])

    async def answer(self, job: str, text: str) -> None:
        await self._ask(["answer", job, text], dict[str, bool])

    async def remove(self, job: str) -> None:
        await self._ask(["remove", job], dict[str, str])

    async def _ask(self, words: Sequence[str], kind: type[K], stdin: bytes = b"") -> K:
        said = await self.machine.script(_CALL, identity(), *words, stdin=stdin, timeout=_PATIENCE)
        try:
            answer = msgspec.json.decode(said.splitlines()[-1] if said.strip() else b"{}")
            if isinstance(answer, dict) and answer.get("missing"):
                raise self.missing()
            if isinstance(answer, dict) and "refused" in answer:
                raise UserError(f"{self.name}: {answer['refused']}")
            return msgspec.convert(answer, kind)
        except msgspec.MsgspecError as error:
            raise StorlabError(f"{self.name}: what Storlab there answered makes no sense: {error}") from None

    def missing(self) -> UserError:
        return UserError(
            f"{self.name} does not have this Storlab ({identity()}): `storlab lab prepare {self.name}` brings it there"
        )
