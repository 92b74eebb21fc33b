"""The page ``docs/reference/lab.md``, written from the schema by ``python -m tools.lab_reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from storlab.lab import LabFile
from storlab.study.machines import Host
from tools.study_reference import table

EXAMPLE = Path(__file__).parent.parent / "examples" / "lab" / "lab.toml"
_START = """\
# Lab files

<!-- Written by `python -m tools.lab_reference`; change the models' descriptions, or that file. -->

The machines that you have, for [`storlab lab`](cli.md#storlab-lab) and for studies that run on them. Commands take it
with `--lab FILE`, or from `STORLAB_LAB`; it is never looked for, because its commands are run.
[Inventories](../how-to/inventories.md) shows how to use one. What is wrong with it is reported with file, line and key.

```toml examples/lab/lab.toml
"""
_COMMANDS = """\
Commands are lists of words, which no shell interprets. They are run in the lab file's folder, and what they print on
standard error is shown. One that ends with another status than 0 ends the command of Storlab's, with status 2.

## Ansible's inventories

A file that is not TOML is an inventory of Ansible's: the JSON that `ansible-inventory --list` prints, or whatever
`ansible-inventory` reads, where it is installed. Its groups are the lab's, with the hosts of their children. Of a
host's variables, these count:

| variable | is |
| --- | --- |
| `ansible_host`, `ansible_user` | what `ssh` is given |
| `storlab_disk`, `storlab_wipe`, `storlab_scratch`, `storlab_address` | the keys of a host without the prefix |

An `ansible_port` other than 22 is refused, and other ways to connect, such as `ansible_ssh_common_args`, are left to
`~/.ssh/config`: Storlab reaches a machine as `ssh` does.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([*_parts()]).rstrip() + "\n"


def _parts() -> Iterator[str]:
    yield f"{_START}{EXAMPLE.read_text('utf-8')}```\n"
    yield "## The file\n"
    yield from table(LabFile)
    yield "## `hosts.NAME`\n"
    yield from table(Host)
    yield _COMMANDS


if __name__ == "__main__":
    sys.stdout.write(reference())
