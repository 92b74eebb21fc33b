"""One connection to another machine, for everything that a run does there.

ssh(1) does it all: its configuration, agent, jump hosts and known hosts are the user's. It asks no question, accepts no
key that is not known, and forwards nothing of this machine's. The connection is a master of Storlab's own, see
ControlMaster in ssh_config(5); every command is a session in it, which needs no login.

The master ends when its standard input does. So it ends, and its socket with it, however the controller ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import signal
import stat
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storlab.base.errors import SshError, UnreachableError, UserError
from storlab.base.limits import OUTPUT
from storlab.base.programs import search_path
from storlab.base.text import one_line
from storlab.base.waiting import cancelled, reaped, to_its_end
from storlab.ssh.client import MARK, last_sentence, remote_command, remote_script, unreachable

CONFIG = "STORLAB_SSH_CONFIG"
"""The environment variable that names another file than ``~/.ssh/config``."""
DESTINATION = r"^([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.:-]*$"
"""What may be a destination: ``host`` or ``user@host``, never an option, nothing that a shell would interpret."""

_ALWAYS = ("BatchMode=yes", "EscapeChar=none", "RequestTTY=no", "ForwardAgent=no", "ForwardX11=no")
_MASTER = (
    *_ALWAYS,
    "LogLevel=INFO",  # of a machine that falls silent, ssh says so no louder
    "StrictHostKeyChecking=yes",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "ControlMaster=yes",
    "ControlPersist=no",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
)
_CLIENT = (
    *_ALWAYS,
    "LogLevel=ERROR",
    "ControlMaster=no",
    "ProxyCommand=exec false",
)  # without the master it must not connect itself
_CONNECT_TIMEOUT = 45.0  # s: over jump hosts, each takes its time
_END_TIMEOUT = 2.0
_PIECE = 256 * 1024  # bytes
_NOISE = 64 * 1024  # bytes that a login shell's files may print
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_GREET = """
echo "architecture $(uname -m)"; echo "uid $(id -u)"
for id in /etc/machine-id /sys/class/dmi/id/product_uuid; do [ -r $id ] && echo "machine $(cat $id)" && break; done
echo "boot $(cat /proc/sys/kernel/random/boot_id)"; set -- $SSH_CONNECTION; echo "address $3"; echo ready
exec cat >/dev/null
"""
_FACTS = {
    "architecture": re.compile(r"[a-z0-9_]{1,32}"),
    "uid": re.compile(r"\d{1,10}"),
    "machine": re.compile(r"[0-9A-Fa-f-]{32,36}"),
    "boot": re.compile(r"[0-9A-Fa-f-]{32,36}"),
    "address": re.compile(r"[0-9A-Fa-f.:]{2,45}"),
}
# $1 name, $2 SHA-256, $3 mode. Folders of others are passed over; with execution asked for, those mounted noexec, too.
_UPLOAD = """
umask 077; found=
sum() { sha256sum <"$1" 2>/dev/null | cut -d' ' -f1; }
for folder in "$HOME/.cache/storlab" "/var/tmp/storlab-$(id -u)" "/run/user/$(id -u)/storlab"; do
    mkdir -p "$folder" 2>/dev/null && [ -O "$folder" ] && [ ! -L "$folder" ] && chmod go-w "$folder" || continue
    if [ -O "$folder/$1" ] && [ ! -L "$folder/$1" ] && [ "$(sum "$folder/$1")" = "$2" ]; then
        chmod "$3" "$folder/$1"
        case $3 in *[1357]*) [ -x "$folder/$1" ] || { found=$folder; continue; };; esac
        echo "there $folder/$1"; exit
    fi
    new=$folder/.$1.$$
    { : >"$new"; } 2>/dev/null || continue
    chmod "$3" "$new"
    case $3 in *[1357]*) [ -x "$new" ] || { found=$folder; rm -f "$new"; continue; };; esac
    rm -f "$new"; echo "missing $folder/$1"; exit
done
echo "nowhere $found"
"""
# $1 path, $2 SHA-256, $3 mode; the content is on standard input.
_WRITE = """
umask 077; new=$1.$$; trap 'rm -f "$new"' EXIT
cat >"$new" || exit
[ "$(sha256sum <"$new" | cut -d' ' -f1)" = "$2" ] || { echo "it arrived damaged" >&2; exit 1; }
chmod "$3" "$new" && mv -f "$new" "$1" && echo written
"""


@dataclass
class Machine:
    """A machine that is connected. ``host``: the destination; the rest is what it says of itself.

    ``machine``: machine-id(5), else its firmware's, else empty. ``boot``: its boot id. ``address``: of its sshd.
    """

    host: str
    architecture: str
    uid: int
    machine: str
    boot: str
    address: str | None
    _socket: Path
    _master: asyncio.subprocess.Process
    _errors: bytearray  # the last of what ssh printed

    @property
    def connected(self) -> bool:
        """Whether the connection stands, as far as ssh knows yet."""
        return self._master.returncode is None

    def argv(self, *words: str, marked: bool = False) -> list[str]:
        """A command of this machine that runs ``words`` there, with its standard streams.

        If ``marked``, its output begins after a line ``MARK`` (see ``past_noise``): without, what the files of the
        login shell print comes first. Raises ``SshError`` if it is too long.
        """
        return [*self._session(), remote_command(words, marked=marked)]

    async def run(self, *words: str, stdin: bytes | None = None, timeout: float | None = 60) -> bytes:
        """Run a command there and return what it printed.

        Raises ``SshError`` (with its ``status``) if it fails, takes longer than ``timeout`` seconds or prints too much,
        and ``UnreachableError`` if the machine is lost.
        """
        return await self._run(words[0] if words else "", remote_command(words, marked=True), stdin, timeout)

    async def script(self, script: str, *arguments: str, stdin: bytes | None = None, timeout: float = 60) -> bytes:
        """As ``run``, for a script of sh(1) with ``arguments`` as ``$1`` and so on."""
        return await self._run("sh", remote_script(script, *arguments), stdin, timeout)

    async def upload(self, content: bytes, name: str, mode: int) -> str:
        """Bring a file into the cache folder there, unless it is there; returns its path.

        It is written under a temporary name, checked there, and renamed. The folder is ``~/.cache/storlab``, or one of
        two others if nothing can be written there, or nothing executed and ``mode`` asks for that.
        """
        if not _NAME.fullmatch(name):
            raise SshError(f"{name!r} can't be the name of a file in the cache folder of {self.host}")
        digest, octal = hashlib.sha256(content).hexdigest(), f"{mode:o}"
        answer = (await self.script(_UPLOAD, name, digest, octal)).decode("utf-8", "replace").strip()
        state, _, path = answer.partition(" ")
        if state == "nowhere" and path:
            raise SshError(
                f"{self.host}: no program may run in {one_line(path)} (mounted noexec), nor in /var/tmp or /run/user: "
                "remount one of them with exec"
            )
        if state not in ("there", "missing") or not path.endswith(f"/{name}"):
            raise SshError(f"{self.host}: nothing can be written to ~/.cache/storlab, /var/tmp or /run/user")
        if state == "missing":
            await self.script(_WRITE, path, digest, octal, stdin=content, timeout=600)
        return path

    async def answers(self, timeout: float) -> bool:
        try:
            await self.run("true", timeout=timeout)
        except SshError as error:
            return error.status is not None
        return True

    def lost(self) -> UnreachableError:
        return unreachable(self.host, self._errors.decode("utf-8", "replace"), "the connection was lost")

    def _session(self) -> list[str]:
        options = [f"-o{option}" for option in _CLIENT]
        return ["ssh", "-F", "none", "-S", str(self._socket), *options, "--", self.host]

    async def _run(self, program: str, command: str, stdin: bytes | None, timeout: float | None) -> bytes:
        argv = [*self._session(), command]
        async with _started(argv, stdin is not None) as process:
            try:
                async with asyncio.timeout(timeout):
                    stdout, stderr = await _communicate(process, stdin, f"{self.host}: `{program}`")
            except TimeoutError:
                if not self.connected:
                    raise self.lost() from None
                raise SshError(f"{self.host}: `{program}` did not end within {timeout:g} s") from None
        noise, mark, output = stdout.partition(f"{MARK}\n".encode())
        said = stderr.decode("utf-8", "replace")
        if process.returncode == 0 and mark:
            return output
        if process.returncode == 255 and not self.connected:
            raise self.lost()
        if not mark:
            if process.returncode == 255:
                raise unreachable(self.host, said, "ssh failed")
            words = one_line((noise + stderr).decode("utf-8", "replace"))[-200:] or "it printed nothing"
            raise SshError(
                f"{self.host}: its login shell ran no command (status {process.returncode}): {words}: "
                f"`ssh {self.host} sh -c true` must succeed"
            )
        reason = one_line(last_sentence(said))[-400:] or "it printed no reason"
        raise SshError(f"{self.host}: `{program}` ended with status {process.returncode}: {reason}", process.returncode)


async def past_noise(reader: asyncio.StreamReader) -> None:
    """Read a marked command's output up to and with the mark. Raises ``SshError`` if there is none."""
    read = 0
    with contextlib.suppress(ValueError):  # a line without end
        while line := await reader.readline():
            if line.endswith(f"{MARK}\n".encode()):
                return
            if (read := read + len(line)) > _NOISE:
                break
    raise SshError("the other machine's login shell ran no command")


@contextlib.asynccontextmanager
async def connected(destination: str, *, folder: Path | None = None) -> AsyncIterator[Machine]:
    """The machine at ``destination``, connected for as long as the context lasts.

    ``folder``: a private folder with a short path for the socket, by default one of this user's. Raises ``UserError``
    for what is no destination, and ``UnreachableError``.
    """
    if not re.fullmatch(DESTINATION, destination):
        raise UserError(f"{one_line(destination)[:80]!r} is no SSH destination: write host or user@host")
    socket = (folder or _sockets()) / secrets.token_hex(6)
    config = ["-F", path] if (path := os.environ.get(CONFIG)) else []
    options = [f"-o{option}" for option in _MASTER]
    argv = ["ssh", *config, "-S", str(socket), *options, "--", destination, remote_script(_GREET)]
    async with _started(argv, with_stdin=True) as master:
        assert master.stderr is not None and master.stdout is not None
        errors = bytearray()
        listening = asyncio.create_task(_keep_last(master.stderr, errors))
        try:
            facts = await _greeting(destination, master, errors, listening)
            machine = Machine(
                destination,
                facts.get("architecture", ""),
                int(facts.get("uid", "-1")),
                facts.get("machine", ""),
                facts.get("boot", ""),
                facts.get("address"),
                socket,
                master,
                errors,
            )
            yield machine
        finally:
            await to_its_end(_end(master, socket))
            await cancelled(listening)


async def _greeting(
    host: str, master: asyncio.subprocess.Process, errors: bytearray, listening: asyncio.Task[None]
) -> dict[str, str]:
    assert master.stdout is not None
    facts: dict[str, str] = {}
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            await past_noise(master.stdout)
            while (line := (await master.stdout.readline()).decode("utf-8", "replace").strip()) != "ready":
                name, _, value = line.partition(" ")
                if not name or len(facts) > len(_FACTS):
                    raise SshError("it did not say what it is")
                if name in _FACTS and _FACTS[name].fullmatch(value):
                    facts[name] = value
    except TimeoutError:
        raise unreachable(host, "", f"it did not answer within {_CONNECT_TIMEOUT:g} s") from None
    except (SshError, ValueError) as error:
        await asyncio.wait([listening], timeout=_END_TIMEOUT)
        raise unreachable(host, errors.decode("utf-8", "replace"), str(error)) from None
    return facts


async def _end(master: asyncio.subprocess.Process, socket: Path) -> None:
    """End the connection: its command ends with its standard input, and the connection with its command."""
    assert master.stdin is not None
    master.stdin.close()
    for name in (None, signal.SIGTERM, signal.SIGKILL):
        if master.returncode is None and name is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(master.pid, name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_TIMEOUT):
                await master.wait()
                break
    socket.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def _started(argv: Sequence[str], with_stdin: bool) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that ends with the context, in a session of its own: without a terminal, ssh asks for no password."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=pipe if with_stdin else nothing,
            stdout=pipe,
            stderr=pipe,
            env={**os.environ, "PATH": search_path(), "SSH_ASKPASS_REQUIRE": "never"},
            start_new_session=True,
        )
    except FileNotFoundError:
        raise SshError("ssh is not installed: apt-get install openssh-client") from None
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            await to_its_end(reaped(process))


async def _communicate(process: asyncio.subprocess.Process, stdin: bytes | None, what: str) -> tuple[bytes, bytes]:
    """As ``Process.communicate``, for another machine: it may not send without end."""
    assert process.stdout is not None and process.stderr is not None
    errors = bytearray()
    feeding = asyncio.create_task(_feed(process.stdin, stdin))
    listening = asyncio.create_task(_keep_last(process.stderr, errors))
    output = bytearray()
    try:
        while piece := await process.stdout.read(_PIECE):
            output += piece
            if len(output) > OUTPUT:
                raise SshError(f"{what} printed more than is taken: {OUTPUT >> 20}M")
        await asyncio.gather(listening, feeding, process.wait())
    finally:
        await cancelled(feeding, listening)
    return bytes(output), bytes(errors)


async def _feed(writer: asyncio.StreamWriter | None, content: bytes | None) -> None:
    if writer is not None and content is not None:
        with contextlib.suppress(ConnectionError):  # it ended before it had read all; its status says how
            writer.write(content)
            await writer.drain()
        writer.close()


async def _keep_last(reader: asyncio.StreamReader, into: bytearray) -> None:
    while piece := await reader.read(_PIECE):
        into += piece
        del into[:-_NOISE]


def _sockets() -> Path:
    """A folder of this user's alone, with a path so short that a socket fits into it. Raises ``SshError``."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or ("/run" if os.geteuid() == 0 else "")
    parent = Path(runtime) if runtime and len(runtime) < 40 and os.access(runtime, os.W_OK) else Path("/tmp")
    folder = parent / f"storlab-ssh-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise SshError(f"{folder} is not a folder of yours alone: remove it")
    return folder
