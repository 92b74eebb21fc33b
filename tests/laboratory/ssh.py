"""An SSH server on the loopback, with keys, a port and a configuration of its own, on what looks like another machine.

It runs in a mount namespace of its own, with another machine-id(5), boot id and scratch folder: what is set up there
can be seen, and undone, only there.
"""

from __future__ import annotations

import getpass
import os
import random
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from laboratory import wait_until

_BOOT = "/proc/sys/kernel/random/boot_id"


@dataclass
class Remote:
    """``scratch`` is a folder that exists on both machines, with other contents."""

    folder: Path
    scratch: Path
    holder: subprocess.Popen[bytes]
    port: int = field(default_factory=lambda: random.randrange(10_000, 30_000))
    """Below those that the kernel gives to connections."""
    _server: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        """For ssh: its one host is called ``far``."""
        return self.folder / "ssh_config"

    def run(self, *argv: str, check: bool = True) -> str:
        """A command on the machine, past SSH."""
        words = ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", "--", *argv]
        return subprocess.run(words, check=check, capture_output=True, text=True).stdout

    def become(self, path: str) -> None:
        """Another machine, or another boot of it: a file that says which is replaced."""
        other = self.folder / uuid.uuid4().hex
        other.write_text(f"{uuid.uuid4() if path == _BOOT else uuid.uuid4().hex}\n")
        self.run("mount", "--bind", str(other), path)

    def become_another(self) -> None:
        self.become("/etc/machine-id")

    def become_the_same(self) -> None:
        self.run("umount", "/etc/machine-id")

    def boot(self) -> None:
        """All that a boot ends is gone: connections, mounts, loop devices."""
        self.stop()
        for mount in reversed(self.mounts()):
            self.run("umount", mount)
        for device in self.run("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").splitlines():
            if str(self.scratch) in device:
                self.run("losetup", "--detach", device.split()[0])
        self.become(_BOOT)
        self.start()

    def mounts(self) -> list[str]:
        """Mount points in the scratch folder, and not that itself."""
        points = (line.split()[4] for line in self.run("cat", "/proc/self/mountinfo").splitlines())
        return [point for point in points if point.startswith(f"{self.scratch}/")]

    def files(self) -> list[str]:
        return self.run("ls", "-A", str(self.scratch)).split()

    def start(self) -> None:
        """Answer from now on, at the port as before if nobody has taken it."""
        for _ in range(20):
            if self._answers():
                return
            self.port = random.randrange(10_000, 30_000)
        pytest.fail(f"sshd does not answer: {(self.folder / 'log').read_text()}")

    def _answers(self) -> bool:
        """Whether the server, once started, has this port to itself."""
        _configure(self.folder, self.port)
        log = self.folder / "log"
        words = ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", "--", _sshd(), "-D", "-e", "-f"]
        with log.open("wb") as output:
            server = subprocess.Popen([*words, str(self.folder / "sshd_config")], stderr=output, env=_environment())
        self._server = server
        wait_until(lambda: server.poll() is not None or "Server listening on" in log.read_text(), 30)
        return server.poll() is None and "Server listening on" in log.read_text()

    def stop(self) -> None:
        """Answer no more, and end all connections."""
        if self._server is not None:
            for pid in _below(self._server.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            self._server.wait()
            self._server = None


def _environment() -> dict[str, str]:
    """Without what marks processes as the laboratory's own, which is on this machine."""
    return {name: value for name, value in os.environ.items() if name != "XDG_STATE_HOME"}


def _sshd() -> str:
    """What may be on the PATH of root alone. It has to be called by its whole path."""
    return shutil.which("sshd", path="/usr/sbin:/usr/bin") or "sshd"


def _below(pid: int) -> list[int]:
    """A process and those that are sshd's own below it: the server, and each connection's."""
    listing = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listing.splitlines()]
    found = [pid]
    for each, parent, name in ((int(row[0]), int(row[1]), row[2]) for row in rows):
        if parent in found and name == "sshd":
            found.append(each)
    return found


@contextmanager
def remote_machine(folder: Path, scratch: Path) -> Iterator[Remote]:
    """It answers, and ends with the context."""
    folder.mkdir()
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    mounts = f"mount -t tmpfs run /run && mkdir /run/sshd && mount -t tmpfs scratch '{scratch}'"
    argv = ["unshare", "--mount", "sh", "-c", f"{mounts} && echo ready && exec sleep infinity"]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, env=_environment())
    remote = Remote(folder, scratch, holder)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        remote.become_another()
        remote.become(_BOOT)
        remote.start()
        yield remote
    finally:
        remote.stop()
        holder.kill()
        holder.communicate()


def _configure(folder: Path, port: int) -> None:
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPermitRootLogin prohibit-password\n"
        f"SetEnv XDG_CACHE_HOME={folder}\n"
    )
    (folder / "ssh_config").write_text(
        f"Host far\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {folder}/user_key\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n"
    )


__all__ = ["Remote", "remote_machine"]
