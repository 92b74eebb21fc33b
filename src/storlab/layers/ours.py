"""What is Storlab's own: everything that it puts somewhere bears the run's id in its name.

What does not is never removed, unmounted or detached, whatever a journal says.
"""

from __future__ import annotations

import os.path
import re

from storlab.errors import StorlabError

_NAME = re.compile(r"\.?storlab-\d{8}-\d{6}-[0-9a-f]{4}(-[^/]*)?")


def refuse_foreign(path: str, *, itself: bool = False) -> None:
    """Raise ``StorlabError`` unless ``path`` lies in a folder of Storlab's, or, with ``itself``, is one."""
    names = path.split("/")
    plain = path.startswith("/") and os.path.normpath(path) == path
    if not plain or not any(_NAME.fullmatch(name) for name in (names[-1:] if itself else names[:-1])):
        raise StorlabError(f"{path} is not Storlab's own: left alone")
