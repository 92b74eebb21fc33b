"""How machines over SSH are logged in to: not as root, behind another machine, and of what architecture they are."""

from __future__ import annotations

import subprocess

import pytest

from laboratory import Laboratory
from laboratory.hosts import Host, Hosts
from laboratory.studies import ON_LOOP, directory
from storlab.base.programs import agent_path

from .test_ssh_nodes import replaced

pytestmark = pytest.mark.needs("root", "ssh", "sshd", "unshare")

LOAD = "command = { argv = ['cat', '/etc/machine-id'] }"
RULES = {"sudo": ("sudoers", "somebody ALL=(ALL) NOPASSWD: ALL\n"), "doas": ("doas.conf", "permit nopass somebody\n")}


def ran_on(lab: Laboratory, host: Host) -> bool:
    found = (lab.out / "trials" / "0001" / "far" / "load" / "stdout").read_text()
    return found == (host.folder / "machine-id").read_text()


def somebody(host: Host, become: str) -> None:
    """Let a user log in there who becomes root by a program without a password."""
    etc = host.folder / "etc"
    etc.mkdir()
    (etc / "passwd").write_text((host.folder / "passwd").read_text() + "somebody:*:4321:4321::/tmp/home:/bin/sh\n")
    (etc / "machine-id").write_text((host.folder / "machine-id").read_text())
    name, rule = RULES[become]
    (etc / name).write_text(rule)
    (etc / name).chmod(0o440)
    own = "lowerdir=/etc,upperdir=/run/lab/etc,workdir=/run/lab/work"
    host.run("sh", "-c", f"mkdir -p /run/lab/work && mount -t overlay -o {own} etc /etc")
    host.run("install", "--directory", "--owner=4321", "--group=4321", "/tmp/home")


@pytest.mark.parametrize("become", [pytest.param(name, marks=pytest.mark.needs(name), id=name) for name in RULES])
def test_a_login_that_is_not_roots_becomes_root_with_no_password(lab: Laboratory, machines: Hosts, become: str) -> None:
    somebody(machines["lab1"], become)
    node = f'nodes.far = {{ kind = "ssh", hosts = ["somebody@lab1"], become = "{become}" }}'
    lab.succeed(f"{node}\n{directory(LOAD, stack=f'[{ON_LOOP}]')}")
    assert ran_on(lab, machines["lab1"])
    machines["lab1"].run("rm", "-r", "/tmp/home")


def test_a_machine_behind_another_is_reached_through_it(lab: Laboratory, machines: Hosts) -> None:
    """From here there is no way to it, and from its neighbour there is."""
    one, two = machines["lab1"], machines["lab2"]
    ends = f"inner0 netns {one.init} type veth peer name inner0 netns {two.init}"
    subprocess.run(["ip", "link", "add", *ends.split()], check=True)
    machines.cut("lab1")
    for host, other in ((one, two), (two, one)):
        host.run("ip", "link", "set", "inner0", "up")
        host.run("ip", "route", "add", other.address, "dev", "inner0")
    machines.config.write_text("Host lab1\n  ProxyJump lab2\n" + machines.config.read_text())
    lab.succeed(f'nodes.far = {{ kind = "ssh", hosts = ["lab1"] }}\n{directory(LOAD)}')
    assert ran_on(lab, one)


def test_an_agent_for_another_architecture_is_refused_in_one_sentence(lab: Laboratory, machines: Hosts) -> None:
    study = lab.study(f'nodes.far = {{ kind = "ssh", hosts = ["lab2"] }}\n{directory(LOAD)}')
    replaced(machines["lab2"], "/usr/bin/uname", "echo aarch64")
    lab.environment["STORLAB_AGENT_aarch64"] = str(agent_path())
    plan = lab.storlab("plan", study)
    assert (plan.status, plan.stdout) == (2, ""), plan
    assert f"lab2: {agent_path()} is a program for x86_64, and not for aarch64" in plan.stderr, plan
