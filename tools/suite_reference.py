"""The page ``docs/reference/suite-file.md``, written from the schema by ``python -m tools.suite_reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from storlab.suites.expectations import ExpectationTable
from storlab.suites.suite_file import Around, CheckTable, CommandLine, GroupTable, Guests, SuiteFile
from tools.study_reference import table

EXAMPLE = Path(__file__).parent.parent / "examples" / "suite" / "own.toml"
EXPECTATIONS = EXAMPLE.with_name("expected.toml")
_START = """\
# Suite files

<!-- Written by `python -m tools.suite_reference`; change the models' descriptions, or that file. -->

A suite file names tests of your own in TOML, for [`storlab suite`](cli.md#storlab-suite); [run a suite of your own](../how-to/run-a-suite-of-your-own.md) shows how
to write one. What is wrong with it is reported with file, line and key before any guest is started.

```toml examples/suite/own.toml
"""
_ADAPTERS = """\
`adapter` says how scripts are run and judged:

| adapter | scripts run | and mean |
| --- | --- | --- |
| `command` | as their user, `root` by default, in `/var/tmp`, with `DISKS` (names without `/dev/`), `DISK1`, `DISK2` … (with it), `FILEDIR` and `TMPDIR` | 0 PASS, one of `skip` SKIP, anything else FAIL |
| `zts` | as those of the ZFS Test Suite: with its environment, its constrained path and its users; `zfs` is loaded | 0 PASS, 4 SKIP, anything else FAIL |
| `ktap` | as with `command` | what the [KTAP](https://docs.kernel.org/dev-tools/ktap.html) says that they print, such as the kernel's kselftests: a subtest that fails, a planned result that is missing, `Bail out!` or a status other than 0 and 4 is FAIL; all skipped, or status 4, SKIP. The reason names the subtests |
| `check` | as with [`storlab suite check`](suites.md#storlab-suite-check): the file names a checkout of xfstests or blktests as `folder`, and the table `check` what is run of it | what `check` says |

A script that is a file is executed as it is, and may be named without its `.ksh` or `.sh`. One with `run` is a line for `sh`. Groups run in the order of the file, with several
guests the longest first: by the times of `--history`, without it those with most tests.
"""

_CHECK = """\
For `adapter = "check"`, which needs a `folder` and takes no `groups`, `defaults` and `skip`. Each folder of tests in the checkout is a group; `--tags` chooses such a folder where any of its tests is
in a group of that name, and `groups` here the tests themselves. `environment` is for variables such as `MKFS_OPTIONS` and `MOUNT_OPTIONS`.

```toml
adapter = "check"
folder  = "xfstests-dev"

[check]
groups         = ["quick"]
exclude_groups = ["dangerous"]
fstyp          = "xfs"

[guests]
memory = "2G"
```
"""

_EXPECTATIONS = """\
## Lists of expectations

`storlab suite run --expect FILE` and `storlab suite report --expect FILE` take a list of what may go wrong, and why. It counts in place of what the suite's own tables say of the
same tests. An entry that is over, or that matches no test, is named in the report.

```toml examples/suite/expected.toml
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([*_parts()]).rstrip() + "\n"


def _parts() -> Iterator[str]:
    yield _START + EXAMPLE.read_text() + "```\n"
    yield "## The file\n"
    yield from table(SuiteFile)
    yield _ADAPTERS
    yield "## `guests`\n"
    yield from table(Guests)
    yield "## `check`\n"
    yield _CHECK
    yield from table(CheckTable)
    yield "## `groups.NAME`\n"
    yield "One group. Its tests run one after another, in this order, in one guest. It also takes all keys of `defaults`.\n"
    yield from table(GroupTable, own=True)
    yield "A test that is a table has\n"
    yield from table(CommandLine)
    yield "## `defaults`\n"
    yield 'What a group inherits unless it says otherwise; `pre = ""` in a group is for none.\n'
    yield from table(Around)
    yield _EXPECTATIONS + EXPECTATIONS.read_text() + "```\n"
    yield "Each `[[expect]]` has\n"
    yield from table(ExpectationTable)


if __name__ == "__main__":
    sys.stdout.write(reference())
