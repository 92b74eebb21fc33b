"""What images of a stranger's may say of themselves, or make of the programs that look into them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attacks.test_study_author import program
from images.test_own import MAKERS
from laboratory.devices import sh
from layers.sites import ground_in
from storlab.base.errors import ImageError, UserError
from storlab.images import commands, own
from storlab.images.cache import Cache
from storlab.images.commands import run_on_strangers

DESCRIBED = 'json:{{"driver":"raw","file":{{"driver":"file","filename":"{secret}"}}}}'


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (("-f", "qcow2", "-b", "{secret}", "-F", "raw"), "has its data in another file, {secret}: "),
        (("-f", "qcow2", "-b", DESCRIBED, "-F", "raw"), "has its data in another file, json:"),
        (("-f", "qcow2", "-o", "data_file={secret},data_file_raw=on"), "has its data in another file, {secret}: "),
        (("-f", "vmdk", "-b", "{base}", "-F", "vmdk"), "is an image in the format vmdk: take a raw or qcow2 one"),
    ],
    ids=["backing", "json", "data", "vmdk"],
)
async def test_an_image_brings_no_other_file_of_this_machine_into_a_disk(
    made: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    secret, base, image = tmp_path / "secret", tmp_path / "base.vmdk", tmp_path / "image"
    sh("qemu-img", "create", "-q", "-f", "vmdk", str(base), "1M")
    secret.write_bytes(b"secret" * 32768)
    size = () if "-b" in made else ("196608",)
    sh("qemu-img", "create", "-q", *(word.format(secret=secret, base=base) for word in made), str(image), *size)
    secret.write_bytes(b"secret" * 32768)
    async with ground_in(tmp_path) as ground:
        for layer in ("image-copy", "image-clone"):
            with pytest.raises(UserError) as refused:
                await ground.set_up({"layer": layer, "base": {"file": str(image)}})
            assert said.format(secret=secret) in str(refused.value)


HEADS = {"erofs": b"\0" * 1024 + b"\xe2\xe1\xf5\xe0", "ext4": b"\0" * 1080 + b"\x53\xef", "squashfs": b"hsqs"}
LISTERS = {"erofs": "dump.erofs", "ext4": "debugfs", "squashfs": "unsquashfs"}
# Tries all that it can think of, and then tells whose it is in the words of a listing of debugfs.
TRIES = """
exec 2> /dev/null
touch {outside} /tmp/storlab-attack /var/tmp/storlab-attack
chmod 777 {image}; echo x >> {image}
mknod {outside} b 7 0
kill -9 {pid}
uid=$(id -u) read=$(head -c 4 {image} | wc -c)
grep -q '^CapEff:.0*4$' /proc/self/status && read="$read-may-read"
networks=$(grep -c : /proc/net/dev)
printf '/1/100755/0/0/%s/1/\\n' "$uid" "$read" "networks-$networks"
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that is looked into first."""
    tmp_path.chmod(0o777)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(commands, "PATH", f"{folder}:{commands.PATH}")
    return folder


@pytest.mark.parametrize("kind", MAKERS)
def test_what_looks_into_an_image_can_do_nothing_else(kind: str, hostile: Path, tmp_path: Path) -> None:
    image, outside = tmp_path / "image", tmp_path / "outside"
    image.write_bytes(HEADS[kind] + b"\0" * 4096)
    image.chmod(0o600)
    before = image.read_bytes()
    program(hostile / LISTERS[kind], TRIES.format(outside=outside, image=image, pid=os.getpid()))
    log = tmp_path / "log"
    printed = run_on_strangers([LISTERS[kind], str(image)], log).decode()
    names = own.parse_debugfs(printed, "")
    assert not outside.exists() and not Path("/tmp/storlab-attack").exists() and image.read_bytes() == before
    assert not Path("/var/tmp/storlab-attack").exists() and image.stat().st_mode & 0o777 == 0o600
    if os.geteuid() == 0:
        user, read, networks = names
        assert int(user) >= 0x70000000 and networks == "networks-1", names
        assert read == "4-may-read", "it has no capability but that of reading"


def test_what_unpacks_an_image_writes_to_its_output_and_nowhere_else(hostile: Path, tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    work.mkdir()
    script = f"touch {outside} {work}/../outside; ln -s {tmp_path} {work}/link; touch {work}/link/outside {work}/mine"
    program(hostile / "fsck.erofs", f"{script}; mount -t tmpfs none {work}; sysctl -w kernel.hostname=evil; true")
    run_on_strangers(["fsck.erofs", f"--extract={work}/tree", "/dev/null"], tmp_path / "log", work)
    assert (work / "mine").exists() and not outside.exists()
    assert not os.path.ismount(work) and os.uname().nodename != "evil"


def test_an_image_that_can_not_be_looked_into_safely_is_not_looked_into(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as where the kernel can't confine what does so."""
    image = tmp_path / "image"
    image.write_bytes(HEADS["ext4"] + b"\0" * 4096)
    agent = program(tmp_path / "agent", 'echo "storlab-agent: can\'t confine debugfs: EPERM" >&2; exit 125')
    monkeypatch.setenv("STORLAB_AGENT", str(agent))
    with pytest.raises(ImageError, match="can't confine debugfs"):
        own.programs_in_image(image, tmp_path / "log")


@pytest.mark.parametrize("folder", ["/", "/etc", "/root", "/usr/../home", "/proc/self/root", "/var/tmp/.."])
def test_guests_are_not_given_all_of_this_machine_though_it_is_allowed(folder: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this machine's own: name a folder of its own"):
        own.own_root(Cache(tmp_path), Path(folder))
