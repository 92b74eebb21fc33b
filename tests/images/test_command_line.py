"""`storlab image` as users meet it, the commands that it runs, and programs that it unpacks of another Debian."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from laboratory import in_a_loop, wait_until
from storlab.base.errors import ImageError, MissingTool
from storlab.doctor import virtual
from storlab.doctor.machine import Machine
from storlab.images import commands, unpacked
from storlab.images.cache import About, Cache, Listed, cache_folder
from storlab.images.image import find_image
from storlab.images.unpacked import MYSQL, UNPACKED, find_virtiofsd, keep
from storlab.layers.attach.virtiofs import VirtiofsdLayer
from storlab.nodes.needs import remedy
from study.program import program


def storlab(*arguments: str, cache: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {}), **more}
    return program("image", *arguments, environment=environment)


@pytest.mark.parametrize(("name", "kind"), [(MYSQL.name, "program"), ("own-kernel-1f", "own kernel")])
def test_what_belongs_to_no_image_is_listed_and_can_be_removed(name: str, kind: str, tmp_path: Path) -> None:
    ended = storlab("list", cache=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "There is no guest image; `storlab image build` makes one.\n")
    assert json.loads(storlab("list", "--json", cache=tmp_path).stdout) == []
    cache = Cache(tmp_path / "storlab" / "images")
    with cache.making(name, 1) as work:
        cache.finish(work, About(versions={"mysqld": "9.7.4-2"}))
    assert f"{kind.capitalize()}s\n{name}  " in storlab("list", cache=tmp_path).stdout
    assert (storlab("remove", name, cache=tmp_path).stdout, cache.parts()) == (f"removed: {name}\n", [])


NAME_ONE = "storlab: name one image to remove, or say --all; `storlab image list` shows them\n"


def test_a_mistake_is_status_2_and_one_sentence_and_the_cache_is_where_xdg_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, says in (
        (["build", "--with", "nfs"], "storlab: there is no extra 'nfs' for guest images; there is: perf, zfs\n"),
        (["remove", "debian"], "storlab: there is no image 'debian'; there is none at all\n"),
        (["remove"], NAME_ONE),
        (["remove", "x", "--all"], NAME_ONE),
    ):
        ended = storlab(*arguments, cache=tmp_path)
        assert (ended.returncode, ended.stderr) == (2, says)
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/storlab/images")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/storlab/images")


@pytest.mark.needs("mmdebstrap")
@pytest.mark.parametrize("command", ["build", "virtiofsd"])
def test_a_mirror_that_cannot_be_reached_is_named_as_the_cause_with_the_log(command: str, tmp_path: Path) -> None:
    ended = storlab(command, "--mirror", "http://127.0.0.1:9/debian", cache=tmp_path)
    assert ended.returncode == 1
    assert "the Debian mirror can't be reached; check the network, or name another with --mirror" in ended.stderr
    assert f"All output: {tmp_path}/storlab/images/logs/" in ended.stderr and "Traceback" not in ended.stderr
    assert [*(tmp_path / "storlab" / "images").glob("parts/*")] == []


@pytest.mark.needs("zfs")
def test_the_list_has_every_image_with_its_parts_and_building_only_if_missing_asks_no_mirror() -> None:
    image = find_image(frozenset({"zfs"}))
    listed = json.loads(storlab("list", "--json").stdout)
    found = next(entry for entry in listed if entry["name"] == image.name)
    assert set(found["sizes"]) == {"root", "kernel", "zfs"} and found["sizes"]["root"] > 100e6 and found["current"]
    plain = storlab("list").stdout
    assert all(word in plain for word in (image.name, image.versions["kernel"], "zfs")), plain
    ended = storlab("build", "--with", "zfs", "--if-missing", "--mirror", "http://127.0.0.1:9/debian")
    assert (ended.returncode, ended.stdout) == (0, f"{image.name} is there\n")


def test_doctor_tells_what_is_there() -> None:
    sizes = {"root": 400 << 20, "kernel": 100 << 20}
    image = Listed("debian-6.12.1", "6.12.1", (), 0.0, True, sizes, {"kernel": "6.12.1-1"})
    check = virtual.guest_image(Machine(), [image])
    assert (check.status, check.says) == ("ok", "debian-6.12.1 (kernel 6.12.1-1), 500 MiB")
    none = virtual.guest_image(Machine(), [])
    assert (none.status, none.says, none.remedy) == ("missing", "none is built", "storlab image build")
    old = virtual.guest_image(Machine(), [Listed("debian-6.12.0", "6.12.0", (), 0.0, False, {}, {})])
    assert old.status == "warn" and "of another version of Storlab" in old.says


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("E: Unable to write - write (28: No space left on device)", "there is no space left on the file system of"),
        ("W: Failed to fetch http://x/Release  Temporary failure resolving 'x'", "the Debian mirror can't be reached"),
        ("E: The repository 'http://x bookworm Release' is not signed.", "install the package debian-archive-keyring"),
        ("E: newuidmap /proc/77/uid_map failed", "needs; run it as root"),
        ("I: doing\nE: setup failed: it broke\nI: x", "mmdebstrap ended with status 25 (E: setup failed: it broke)"),
        ("make: *** [all] Error 2", "mmdebstrap ended with status 25 (make: *** [all] Error 2)"),
        ("", "mmdebstrap ended with status 25"),
    ],
)
def test_the_cause_is_read_from_the_output_of_the_command_that_failed(output: str, cause: str, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "root.log"
    text = f"$ apt-get update\nNo space left on device\n$ mmdebstrap --mode=root\n{output}\n"
    assert cause in commands.cause(text, "mmdebstrap", 25, log)


def test_a_command_that_fails_names_its_log_a_signal_and_a_missing_program_its_package(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ImageError, match=rf"ended with status 3 \(broken\)\. All output: {log}"):
        commands.run([sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"], log)
    assert "broken" in log.read_text()
    assert "was killed by signal 9" in commands.cause("$ zstd\n", "zstd", -9, tmp_path / "log")
    with pytest.raises(MissingTool, match="needs no-such-thing; apt-get install no-such-thing"):
        commands.need(["sh", "no-such-thing"])
    text = "\n$ mmdebstrap\nE: Release file for http://x/dists/sid/InRelease is expired (invalid since 17d 16h).\n"
    assert "lists have expired" in commands.cause(text, "mmdebstrap", 1, tmp_path / "logs" / "log")
    seen: list[str] = []
    asyncio.run(commands.follow(["sh", "-c", "echo one; echo two >&2"], tmp_path / "log", seen.append))
    assert seen == ["one", "two"]


@in_a_loop
async def test_a_cancelled_command_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/ended; exit' TERM; sleep 3600 & echo $!; wait"
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(commands.follow(["sh", "-c", script], tmp_path / "log", started.set_result))
    sleep = int(await started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "ended").exists() and wait_until(lambda: not Path(f"/proc/{sleep}").exists())


RELEASE = "Origin: Debian\nSuite: unstable\nCodename: sid\nComponents: main\nArchitectures: amd64\n{more}"


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and where it is served."""
    folder = tmp_path / "mirror"
    (folder / "dists" / "sid").mkdir(parents=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield folder / "dists" / "sid", f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("wanted", [UNPACKED["rust"], UNPACKED["c"], MYSQL], ids=lambda wanted: wanted.name)
def test_a_package_without_the_program_is_refused(wanted: object, tmp_path: Path) -> None:
    assert isinstance(wanted, type(MYSQL))
    with pytest.raises(ImageError, match=f"no {wanted.path}"):
        keep(wanted, tmp_path, tmp_path, tmp_path / "log")


@pytest.mark.needs("mmdebstrap")
def test_what_debian_did_not_sign_is_refused_and_nothing_is_kept(mirror: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = mirror
    (folder / "Release").write_text(RELEASE.format(more="Date: Sat, 01 Jan 2022 00:00:00 UTC\n"))
    ended = storlab("mysql", "--mirror", url, cache=tmp_path)
    assert ended.returncode == 1 and "the mirror's signature can't be checked" in ended.stderr, ended.stderr
    assert [*(tmp_path / "storlab" / "images").glob("parts/*")] == []


@pytest.mark.needs("mysql")
def test_an_unpacked_mysqld_is_one(tmp_path: Path) -> None:
    assert MYSQL.words is not None
    said = commands.run([*MYSQL.words, "--version"], tmp_path / "log").decode()
    assert "mysqld  Ver " in said and "MariaDB" not in said


@pytest.mark.needs("packages")
def test_it_is_unpacked_once_and_needs_nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(unpacked, "INSTALLED", {"rust": (), "c": ()})
    assert find_virtiofsd("rust") is None
    ended = storlab("virtiofsd", cache=tmp_path)
    assert (ended.returncode, ended.stdout.split()[::2]) == (0, ["virtiofsd", "is"]), ended.stderr
    words = find_virtiofsd("rust")
    assert words is not None
    said = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split() == ended.stdout.split()[:2]
    (part,) = (tmp_path / "storlab" / "images" / "parts").iterdir()
    assert {path.suffix for path in part.iterdir() if path.is_dir()} == set(), "nothing else of that Debian is kept"
    made = part.stat().st_mtime_ns
    assert (storlab("virtiofsd", "--quiet", cache=tmp_path).stdout, part.stat().st_mtime_ns) == ("", made)


def test_an_installed_virtiofsd_is_preferred_and_where_there_is_none_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(unpacked, "INSTALLED", {"rust": (), "c": ()})
    for implementation, options in (("rust", ""), ("c", " --implementation c")):
        (program,) = VirtiofsdLayer.model_validate({"implementation": implementation}).needs().programs
        assert remedy(program) == f"storlab image virtiofsd{options}"
    installed = tmp_path / "virtiofsd"
    installed.write_text("#!/bin/sh\n")
    monkeypatch.setattr(unpacked, "INSTALLED", {"rust": (str(installed),), "c": ()})
    assert find_virtiofsd("rust") != (str(installed),), "it can't be run"
    installed.chmod(0o755)
    assert find_virtiofsd("rust") == (str(installed),)
