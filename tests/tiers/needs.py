"""What a test needs beyond Python: one marker, ``@pytest.mark.needs("root", "guests", "tcpdump")``.

Each word is a key of ``KINDS`` or the name of a program. Where a need is not met the test is skipped with the reason,
and fails in CI, whose machine has all of it but those of ``ELSEWHERE``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import cache

import pytest

from storlab.base.errors import MissingImage
from storlab.images.image import find_image
from storlab.images.unpacked import MYSQL, find_virtiofsd

ELSEWHERE = frozenset({"kvm", "mysql", "tgtd"})
"""What even CI may lack: the processor's help, Debian's unstable on the days when it is broken, and a server of disks
whose package has it run at once.
"""

_IMPLIED = {"guests": ("root",), "zfs": ("root", "guests"), "packages": ("root",), "slurm": ("root",)}
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_BROWSER = ("chromium", "chromium-browser", "google-chrome")


def skip_unless_met(item: pytest.Item) -> None:
    """Skip a test that can't run here, or fail it where it should be able to."""
    for need in sorted(needs_of(item)):
        if reason := reason_against(need):
            if os.environ.get("CI") and need not in ELSEWHERE:
                pytest.fail(f"CI should have what this test needs: {reason}", pytrace=False)
            pytest.skip(reason)


def needs_of(item: pytest.Item) -> frozenset[str]:
    """The words of all its markers, with what these imply. Raises ``UsageError`` for what is no word."""
    words = frozenset(word for marker in item.iter_markers("needs") for word in marker.args)
    if not all(isinstance(word, str) and word for word in words):
        raise pytest.UsageError(f"{item.nodeid}: each need is one word, and these are {sorted(map(repr, words))}")
    return words.union(*(_IMPLIED.get(word, ()) for word in words))


@cache
def reason_against(need: str) -> str:
    """Why this machine can't meet a need; empty where it can."""
    if (find := KINDS.get(need)) is not None:
        return find()
    return "" if shutil.which(need, path=_PATH) else f"{need} is not installed"


def _root() -> str:
    return "" if os.geteuid() == 0 else "needs root: loop devices, mounts, namespaces, eBPF or other users"


def _image(*extras: str) -> str:
    try:
        find_image(frozenset(extras))
    except MissingImage as error:
        return str(error)
    return ""


def _kvm() -> str:
    return "" if os.access("/dev/kvm", os.R_OK | os.W_OK) else "there is no /dev/kvm to use"


def _browser() -> str:
    return "" if any(map(shutil.which, _BROWSER)) else "no Chromium is installed: apt-get install chromium"


def _mysql() -> str:
    return "" if MYSQL.folder else "MySQL is not there: `storlab image mysql` unpacks it"


def _virtiofsd() -> str:
    return "" if find_virtiofsd("rust") else "there is no virtiofsd: `storlab image virtiofsd` unpacks one"


def _packages() -> str:
    return "" if shutil.which("mmdebstrap") else "mmdebstrap is not installed, which fetches packages"


def _slurm() -> str:
    missing = [name for name in ("munged", "sbatch", "slurmctld", "slurmd") if not shutil.which(name, path=_PATH)]
    return f"{missing[0]} is not installed, which a Slurm cluster takes" if missing else ""


KINDS: Mapping[str, Callable[[], str]] = {
    "root": _root,
    "guests": _image,
    "zfs": lambda: _image("zfs"),
    "kvm": _kvm,
    "browser": _browser,
    "mysql": _mysql,
    "virtiofsd": _virtiofsd,
    "packages": _packages,
    "slurm": _slurm,
}
"""What is no program → why it is not to be had here, or nothing."""
