"""Where programs are looked for: Debian keeps mkfs, losetup and their kind off an ordinary user's PATH."""

from __future__ import annotations

import os

ADMINISTRATION = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def search_path(*more: str) -> str:
    """The user's PATH, then the folders of administration as far as they are not in it, then ``more``."""
    own = os.environ.get("PATH") or os.defpath
    return os.pathsep.join(dict.fromkeys([*own.split(os.pathsep), *ADMINISTRATION, *more]))
