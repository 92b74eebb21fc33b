"""Numbers of users that nobody is, for programs that are nobody's business: see UIDS-GIDS.md of systemd."""

from __future__ import annotations

import hashlib
import pwd
import secrets

_FIRST, _COUNT = 0x70000000, 0x10000000  # which nothing gives away


def unused_user() -> int:
    """One, drawn from more than two hundred million."""
    while True:
        user = _FIRST + secrets.randbelow(_COUNT)
        try:
            pwd.getpwuid(user)
        except KeyError:
            return user


def user_by(text: str) -> int:
    """One that is always the same for the same text."""
    return _FIRST + int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % _COUNT
