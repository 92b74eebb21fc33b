"""What the command line can permit a study beyond a run's own scratch, in words: ``--allow WORD=VALUE``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Word = Literal["code", "device", "write", "read", "listen", "kernel", "host"]

WORDS: Mapping[Word, str] = {
    "code": "a program, script or library that runs with more than a load may, or is loaded into a program",
    "device": "a device, whose data may be lost",
    "write": "a folder or file outside the run's own, which is written to",
    "read": "a file outside the folder of the study or suite, whose contents get into the run",
    "listen": "an address at which others can connect",
    "kernel": "a setting of a kernel or of a network interface, which all that runs there shares",
    "host": "a machine that Storlab logs in to, with your keys",
}
"""What ``--allow WORD=VALUE`` permits."""
