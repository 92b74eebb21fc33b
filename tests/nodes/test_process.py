"""What is said of a command that failed."""

from __future__ import annotations

import pytest

from storlab.errors import CommandFailed
from storlab.nodes.process import Exit


def failed(program: str, stderr: str) -> Exit:
    return Exit((program,), 1, None, False, None, None, 0.0, 0.1, 0.0, 0.0, 0, 0, b"", stderr.encode())


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        ("mount: /mnt: special device /dev/x does not exist.\n", "special device /dev/x does not exist."),
        ("warming up\nwrite failed\n", "write failed"),
        (
            "Filesystem must be larger than 300MB.\nUsage: mkfs.xfs\n<num> is xxx (512 byte blocks).\n",
            "larger than 300MB.",
        ),
        ("", "no output"),
    ],
)
def test_a_failure_names_the_line_that_says_what_was_wrong(stderr: str, told: str) -> None:
    with pytest.raises(CommandFailed, match=r"node here: mkfs\.xfs ended with status 1: ") as error:
        failed("mkfs.xfs", stderr).check("here")
    assert str(error.value).endswith(told)
