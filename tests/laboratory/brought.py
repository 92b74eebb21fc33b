"""Storlab on a test host, as ``storlab lab prepare`` leaves it: by links to files of this machine, which is fast."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

from laboratory.hosts import Host
from storlab.remote.bundle import Wanted, packed_for
from storlab.remote.host import PLACE
from storlab.remote.version import identity


def place_on(host: Host) -> Path:
    """Where it lies there, as this machine sees it."""
    return host.home / PLACE / identity()


def bring(host: Host) -> None:
    """Let a host have this Storlab."""
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
