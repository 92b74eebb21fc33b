"""What is unpacked of another Debian: verified by apt, whole, and what is not there is said."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from storlab.errors import ImageError
from storlab.images import commands
from storlab.images.cache import About, Cache
from storlab.images.mysql import MYSQL
from storlab.images.unpacked import keep
from storlab.images.virtiofsd import UNPACKED

from .test_command_line import storlab

needs_mmdebstrap = pytest.mark.skipif(commands.find("mmdebstrap") is None, reason="mmdebstrap is not installed")
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


@needs_mmdebstrap
def test_what_debian_did_not_sign_is_refused_and_nothing_is_kept(mirror: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = mirror
    (folder / "Release").write_text(RELEASE.format(more="Date: Sat, 01 Jan 2022 00:00:00 UTC\n"))
    ended = storlab("mysql", "--mirror", url, cache=tmp_path)
    assert ended.returncode == 1 and "the mirror's signature can't be checked" in ended.stderr, ended.stderr
    assert [*(tmp_path / "storlab" / "images").glob("parts/*")] == []


@needs_mmdebstrap
def test_a_mirror_that_can_not_be_reached_is_named(tmp_path: Path) -> None:
    ended = storlab("mysql", "--mirror", "http://127.0.0.1:1/debian", cache=tmp_path)
    assert ended.returncode == 1 and "the Debian mirror can't be reached" in ended.stderr


def test_lists_that_have_expired_are_called_that(tmp_path: Path) -> None:
    text = "\n$ mmdebstrap\nE: Release file for http://x/dists/sid/InRelease is expired (invalid since 17d 16h).\n"
    assert "lists have expired" in commands.cause(text, "mmdebstrap", 1, tmp_path / "logs" / "log")


def test_an_unpacked_mysqld_is_one(tmp_path: Path) -> None:
    if MYSQL.words is None:
        pytest.skip("MySQL is not there: `storlab image mysql` unpacks it")
    said = commands.run([*MYSQL.words, "--version"], tmp_path / "log").decode()
    assert "mysqld  Ver " in said and "MariaDB" not in said


def test_an_unpacked_program_is_listed_and_can_be_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "storlab" / "images")
    with cache.making(MYSQL.name, 1) as work:
        cache.finish(work, About(versions={"mysqld": "9.7.4-2"}))
    assert f"{MYSQL.name}  program  " in storlab("list", cache=tmp_path).stdout
    assert storlab("remove", MYSQL.name, cache=tmp_path).stdout == f"removed: {MYSQL.name}\n"
    assert cache.parts() == []
