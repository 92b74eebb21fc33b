"""Other machines over OpenSSH: whatever their login shell is, and whatever goes wrong."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import wait_until
from laboratory.hosts import Hosts, hosts
from storlab.base.errors import SshError, UnreachableError, UserError
from storlab.ssh.machine import Machine, connected

pytestmark = pytest.mark.needs("root", "ssh", "sshd")

ODD = ["a b", "$HOME `x` !ls ~ * ? [a] {b,c} \\n ' \" # % ^ & ; | > <", "two\nlines\n\n", "ünï", "", "=ls", "\x01\x7f"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("ssh") / "hosts", 1) as lab:
        yield lab


@pytest.fixture(autouse=True)
def configured(lab: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORLAB_SSH_CONFIG", str(lab.config))


async def _with(host: str, what: str) -> bytes:
    async with connected(host) as machine:
        return await machine.run(*what.split())


@pytest.mark.parametrize("shell", ["bash", "dash", "fish", "tcsh"])
def test_words_arrive_as_they_are_whatever_the_login_shell_is_and_prints(lab: Hosts, shell: str) -> None:
    if not Path(path := f"/usr/bin/{shell}").exists():
        pytest.skip(f"{shell} is not installed")
    lab["lab1"].login_shell(path)
    for name in (".bashrc", ".tcshrc"):
        (lab["lab1"].home / name).write_text("echo noise from a startup file\n")

    async def echoed() -> bytes:
        async with connected("lab1") as machine:
            return await machine.run("printf", "%s\\0", *ODD, stdin=b"not read")

    try:
        assert asyncio.run(echoed()).decode().split("\0")[:-1] == ODD
    finally:
        lab["lab1"].login_shell("/bin/bash")


def test_a_machine_says_what_it_is_and_a_file_is_brought_there_once(lab: Hosts) -> None:
    async def facts() -> Machine:
        async with connected("lab1") as machine:
            content = os.urandom(3_000_000)
            path = await machine.upload(content, "agent-x", 0o755)
            assert path == await machine.upload(content, "agent-x", 0o755) == "/root/.cache/storlab/agent-x"
            found = lab["lab1"].home / ".cache" / "storlab" / "agent-x"
            assert found.read_bytes() == content and found.stat().st_mode & 0o777 == 0o755
            assert [each.name for each in found.parent.iterdir()] == ["agent-x"]
            return machine

    machine = asyncio.run(facts())
    assert (machine.architecture, machine.uid, machine.address) == (os.uname().machine, 0, lab["lab1"].address)
    assert machine.boot == (lab["lab1"].folder / "boot").read_text().strip()
    assert machine.machine == (lab["lab1"].folder / "machine-id").read_text().strip()


def test_a_home_where_nothing_may_run_is_passed_over(lab: Hosts) -> None:
    lab["lab1"].run("sh", "-c", "mkdir -p /root/.cache && mount -t tmpfs -o noexec,mode=700 cache /root/.cache")

    async def uploaded(mode: int) -> str:
        async with connected("lab1") as machine:
            return await machine.upload(b"#!/bin/sh\n", "program", mode)

    try:
        assert asyncio.run(uploaded(0o755)) == "/var/tmp/storlab-0/program"
        assert asyncio.run(uploaded(0o644)) == "/root/.cache/storlab/program"
    finally:
        lab["lab1"].run("umount", "/root/.cache")


def test_a_command_that_fails_is_named_with_its_reason_and_status(lab: Hosts) -> None:
    with pytest.raises(SshError, match=r"lab1: `ls` ended with status 2: ls: cannot access '/nowhere'") as raised:
        asyncio.run(_with("lab1", "ls /nowhere"))
    assert raised.value.status == 2


def _another_key(lab: Hosts) -> str:
    """For ssh: the host was known by another key, the user's."""
    (lab.folder / "changed").write_text(f"{lab['lab1'].address} {(lab.folder / 'user_key.pub').read_text()}")
    return f"UserKnownHostsFile {lab.folder}/changed"


@pytest.mark.parametrize(
    ("case", "sentence", "remedy"),
    [
        ("HostName no-such-host.invalid", "Could not resolve hostname", "correct the name"),
        ("Port 23", "Connection refused", "start sshd there"),
        ("HostName {network}.99", "No route to host", "check that the machine is on"),
        ("UserKnownHostsFile /dev/null", "host key is known for", "accept it once with `ssh odd`"),
        ("changed", "verification failed", "ssh-keygen -R odd"),
        ("IdentityFile /nowhere", "Permission denied (publickey", "ssh-copy-id odd"),
        ("Nonsense yes", "Bad configuration option", "correct ssh's configuration"),
    ],
)
def test_what_ssh_says_last_is_passed_on_with_a_remedy(
    lab: Hosts, monkeypatch: pytest.MonkeyPatch, case: str, sentence: str, remedy: str
) -> None:
    odd = _another_key(lab) if case == "changed" else case.format(network=lab.network)
    text = f"Host odd\n  {odd}\n  HostName {lab['lab1'].address}\n  User root\n  IdentitiesOnly yes\n"
    own = f"  UserKnownHostsFile {lab.folder}/known_hosts\n"
    own += "" if "Identity" in odd else f"  IdentityFile {lab.folder}/user_key\n"
    (lab.folder / "odd_config").write_text(text + own)
    monkeypatch.setenv("STORLAB_SSH_CONFIG", str(lab.folder / "odd_config"))
    with pytest.raises(UnreachableError) as raised:
        asyncio.run(_with("odd", "true"))
    message = str(raised.value)
    assert message.startswith("cannot reach odd: ")
    assert sentence in message and remedy in message and "\n" not in message


@pytest.mark.parametrize("destination", ["-oProxyCommand=touch /tmp/x", "a b", "", "x;y", "$(id)", "a@-b"])
def test_what_is_no_destination_never_reaches_ssh(destination: str) -> None:
    with pytest.raises(UserError, match="no SSH destination"):
        asyncio.run(_with(destination, "true"))


def test_a_cut_link_is_noticed_and_nothing_connects_again_by_itself(lab: Hosts) -> None:
    async def lost() -> None:
        async with connected("lab1") as machine:
            lab.cut("lab1")
            with pytest.raises(UnreachableError, match="cannot reach lab1: "):
                await machine.run("true")
            lab.mend("lab1")
            with pytest.raises(UnreachableError):
                await machine.run("true")

    try:
        asyncio.run(lost())
    finally:
        lab.mend("lab1")


def test_the_connection_ends_with_its_controller_even_if_that_is_killed(lab: Hosts, tmp_path: Path) -> None:
    program = """
import asyncio, pathlib, sys
from storlab.ssh.machine import connected
async def main():
    async with connected("lab1", folder=pathlib.Path(sys.argv[1])):
        print("connected", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""
    folder = tmp_path / "s"
    folder.mkdir()
    argv = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None and controller.stdout.readline() == b"connected\n"
        assert len(list(folder.iterdir())) == 1
        controller.kill()
    assert wait_until(lambda: not list(folder.iterdir()), 20)
    assert wait_until(lambda: lab["lab1"].processes() == [], 20)
