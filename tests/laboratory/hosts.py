"""Machines over SSH that are namespaces of this one, each with its own sshd, boot, ids, clocks, processes, folders.

    with hosts(tmp_path / "hosts", 2) as lab:
        lab.ssh("lab1", "hostname")
        lab.cut("lab1"); lab.mend("lab1"); lab.kill("lab1"); lab.reboot("lab1")

They are called ``lab1``, ``lab2``, …; ``lab.config`` is for ``ssh -F`` and ``STORLAB_SSH_CONFIG``. A host's ``/root``,
``/tmp`` and ``/var/tmp`` are its own, in ``folder/lab1/``, and outlive its boot. The kernel is this machine's: loop
devices, modules, the page cache, cgroups. A controller started with ``CONTROLLER`` in front can't see their processes.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from laboratory import wait_until
from laboratory.samples import sample
from storlab.remote.host import PLACE, identity
from storlab.remote.prepare import Wanted, packed_for

CONTROLLER = ("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
OWN = ("root", "tmp", "var/tmp")
"""Folders that are a host's own."""

_INIT = sample(__file__, "cases/host-init.sh")
_SSHD = """ListenAddress {address}
HostKey /run/lab/host_key
PidFile none
UsePAM no
StrictModes no
AuthorizedKeysFile /run/lab/authorized_keys
PermitRootLogin prohibit-password
"""
_CLIENT = """Host {name}
  HostName {address}
  User root
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
"""


@dataclass
class Host:
    """One machine. ``folder`` has its own folders, and what it is."""

    name: str
    number: int
    address: str
    folder: Path
    holder: subprocess.Popen[bytes] | None = None

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def scratch(self) -> Path:
        return self.folder / "var" / "tmp"

    @property
    def home(self) -> Path:
        return self.folder / "root"

    def login_shell(self, path: str) -> None:
        """From now on, root's login shell there."""
        # Written in place: the file is mounted there.
        (self.folder / "passwd").write_text(f"root:x:0:0:root:/root:{path}\nsshd:x:100:65534::/run/sshd:/bin/false\n")

    def run(self, *argv: str, check: bool = True) -> str:
        """A command there, past SSH."""
        assert self.holder is not None, f"{self.name} is not running"
        words = ["nsenter", "--target", str(self.init), "--all", "--", *argv]
        return subprocess.run(words, check=check, capture_output=True, text=True, env=_environment()).stdout

    @property
    def init(self) -> int:
        """Its process 1, as this machine numbers it."""
        assert self.holder is not None
        return int(Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()[0])

    def processes(self) -> list[str]:
        """The command lines that run there, without those of the host itself."""
        rows = [line.split(maxsplit=2) for line in self.run("ps", "-e", "-o", "pid=,ppid=,args=").splitlines()]
        own = {("1", "sleep 1"), ("0", "ps -e -o pid=,ppid=,args=")}
        return [
            words
            for pid, parent, words in rows
            if pid != "1" and (parent, words) not in own and not words.startswith(("sshd:", "/usr/sbin/sshd"))
        ]

    def mounts(self) -> list[str]:
        """Mount points in its folders, and not those that the host itself has."""
        points = (line.split()[4] for line in self.run("cat", "/proc/self/mountinfo").splitlines())
        return [point for point in points if point.startswith(tuple(f"/{own}/" for own in OWN))]


@dataclass
class Hosts:
    """Machines on one network with this one, which has the address ``.254`` there."""

    folder: Path
    network: str
    names: str
    hosts: dict[str, Host] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def environment(self) -> dict[str, str]:
        return {"STORLAB_SSH_CONFIG": str(self.config)}

    def ssh(self, name: str, *words: str, check: bool = True) -> str:
        """What a command prints there, by plain ssh."""
        argv = ["ssh", "-F", str(self.config), "-oBatchMode=yes", name, *words]
        return subprocess.run(argv, check=check, capture_output=True, text=True).stdout

    def cut(self, name: str) -> None:
        """From now on no packet reaches it or comes from it."""
        _ip("link", "set", self._link(self.hosts[name]), "down")

    def mend(self, name: str) -> None:
        """It can be reached again."""
        _ip("link", "set", self._link(self.hosts[name]), "up")
        self._reach(self.hosts[name])

    def kill(self, name: str) -> None:
        """The machine is off: its processes and mounts are gone, its files are not."""
        host = self.hosts[name]
        if host.holder is not None:
            init = os.pidfd_open(host.init)
            host.holder.kill()
            host.holder.communicate()
            host.holder = None
            ended, _, _ = select.select([init], [], [], 60)  # process 1 has ended once all others have
            os.close(init)
            assert ended, f"{name} does not end"
        # The kernel takes a dead machine's card away some time later, and until then the next boot's has no name.
        subprocess.run(["ip", "link", "delete", self._link(host)], check=False, stderr=subprocess.DEVNULL)
        _detach_loops(host.folder)

    def start(self, name: str) -> None:
        """Boot a machine that is off; returns when its sshd answers."""
        host = self.hosts[name]
        assert host.holder is None, f"{name} is running"
        (host.folder / "boot").write_text(f"{uuid.uuid4()}\n")
        offset = str(host.number * 1000)
        words = ["unshare", "--net", "--uts", "--ipc", "--pid", "--mount", "--time", "--monotonic", offset]
        words += ["--boottime", offset, "--fork", "--mount-proc", "--kill-child"]
        words += ["sh", "-c", _INIT, "init", name, str(host.folder), f"{host.address}/24"]
        host.holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())
        assert host.holder.stdin is not None and host.holder.stdout is not None
        assert host.holder.stdout.readline() == b"ready\n", f"{name} does not boot"
        link = self._link(host)
        # A machine keeps its card when it boots, so what its neighbours remember of it stays true.
        card = ["name", "eth0", "address", f"02:00:00:00:00:{host.number:02x}", "netns", str(host.init)]
        _ip("link", "add", link, "type", "veth", "peer", *card)
        _ip("link", "set", link, "master", f"{self.names}b", "up")
        (host.folder / "log").write_text("")
        host.holder.stdin.write(b"\n")
        host.holder.stdin.flush()
        self._reach(host)

    def reboot(self, name: str, release: str = "") -> None:
        """Its power is cut, and it boots again: another boot id, the same machine id and files.

        ``release``: what its kernel then says that it is, in ``/proc``; uname(2) can't be told so.
        """
        self.kill(name)
        (self.hosts[name].folder / "osrelease").write_text(f"{release or os.uname().release}\n")
        self.start(name)

    def add(self, number: int) -> None:
        name, address = f"lab{number}", f"{self.network}.{number}"
        host = self.hosts[name] = Host(name, number, address, self.folder / name)
        for own in OWN:
            (host.folder / own).mkdir(parents=True)
        for folder in (host.tmp, host.scratch):
            folder.chmod(0o1777)
        host.home.chmod(0o700)
        (host.folder / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
        (host.folder / "osrelease").write_text(f"{os.uname().release}\n")
        host.login_shell("/bin/bash")
        _key(host.folder / "host_key")
        shutil.copy(self.folder / "user_key.pub", host.folder / "authorized_keys")
        (host.folder / "sshd_config").write_text(_SSHD.format(address=address))
        public = " ".join((host.folder / "host_key.pub").read_text().split()[:2])
        with (self.folder / "known_hosts").open("a") as known, self.config.open("a") as config:
            known.write(f"{address} {public}\n")
            config.write(_CLIENT.format(name=name, address=address, folder=self.folder))
        self.start(name)

    def _reach(self, host: Host) -> None:
        """Until its sshd answers: the kernel takes a second to notice that a link is up, and longer beside others."""

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((host.address, 22), timeout=2) as connection:
                return connection.recv(4) == b"SSH-"
            return False

        assert wait_until(answers, 60), f"{host.name} does not answer"

    def _link(self, host: Host) -> str:
        return f"{self.names}v{host.number}"


@contextlib.contextmanager
def hosts(folder: Path, count: int = 1, folders: Sequence[Path] = ()) -> Iterator[Hosts]:
    """``count`` machines that answer, until the context ends. ``folders`` in ``/tmp`` or ``/var/tmp`` exist there."""
    folder.mkdir(parents=True)
    _key(folder / "user_key")
    token = f"{random.SystemRandom().randrange(16**6):06x}"
    network = f"10.{random.SystemRandom().randrange(64, 128)}.{random.SystemRandom().randrange(256)}"
    lab = Hosts(folder, network, f"sl{token}")
    _ip("link", "add", f"{lab.names}b", "type", "bridge")
    try:
        _ip("address", "add", f"{network}.254/24", "dev", f"{lab.names}b")
        _ip("link", "set", f"{lab.names}b", "up")
        for number in range(1, count + 1):
            lab.add(number)
            for each in folders:
                lab[f"lab{number}"].run("mkdir", "-p", str(each))
        yield lab
    finally:
        for name in lab.hosts:
            lab.kill(name)
        _ip("link", "delete", f"{lab.names}b")
        # Of a file below a host's own /tmp the kernel shows the path from there.
        if Path(tempfile.gettempdir()) in folder.parent.parents:
            _detach_loops(Path("/", folder.parent.relative_to(tempfile.gettempdir())))


def place_on(host: Host) -> Path:
    """Where it lies there, as this machine sees it."""
    return host.home / PLACE / identity()


def bring(host: Host) -> None:
    """Let a host have this Storlab, as ``storlab lab prepare`` does, but by links to files of this machine: fast."""
    place = place_on(host)
    python = "/usr/bin/python3"
    version = sys.version_info[:2]
    host.run(python, "-I", "-m", "venv", "--without-pip", "--symlinks", f"/root/{PLACE}/{identity()}")
    library = place / "lib" / "python{}.{}".format(*version) / "site-packages"
    assert library.is_dir(), f"{python} is not the version of this one, so its libraries would not load"
    with packed_for(Wanted(version, os.uname().machine)) as parts:
        for name, path in parts:
            target = library / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                try:
                    os.link(path, target)
                except OSError:
                    shutil.copy(path, target)
    (place / "ready").touch()


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _detach_loops(folder: Path) -> None:
    """Loop devices are the kernel's, which the machine's death does not end here."""
    argv = ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"]
    for line in subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines():
        if str(folder) in line:
            subprocess.run(["losetup", "--detach", line.split()[0]], check=False)


def _environment() -> dict[str, str]:
    """Without what is this machine's, or marks its processes."""
    kept = ("PATH", "LANG", "LC_ALL")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"HOME": "/root"}


__all__ = ["CONTROLLER", "Host", "Hosts", "bring", "hosts", "place_on"]
