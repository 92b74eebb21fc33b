"""Requests to servers of shares in a real guest: what its kernel counts is what its loads did and what a daemon got."""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from storlab.images.virtiofsd import find_virtiofsd
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.requests.probe import ShareRequestsProbe
from storlab.probes.subject import ShareMount, Subject, read_subject

READS, WRITES, OF_9P = 23, 31, 17
STUDY = """
primary = "elapsed"
repeat = {{ until = "max", min = 1, max = 1 }}
trial = {{ settle = {{ sync = false, drop_caches = false }} }}
probes.share-requests = {{}}
[nodes.v]
kind = "vm"
memory = "256M"
stack = [{{ layer = "directory" }}, {daemon}, {{ layer = "virtiofs" }}]
extra.p.stack = [{{ layer = "directory" }}, {{ layer = "9p", cache = "none" }}]
extra.b.stack = [{{ layer = "directory" }}, {{ layer = "virtiofsd" }}, {{ layer = "virtiofs" }}]
[workload.fuse]
on = "v"
command.argv = ["sh", "-c", '''
dd if=/dev/zero of={{target}}/x bs=8k count={writes}
dd if={{target}}/x of=/dev/null bs=8k count={reads}
''']
[workload.nine]
on = "v:p"
command.argv = ["dd", "if=/dev/zero", "of={{target}}/x", "bs=4k", "count={nine}"]
"""
TRACER = '{{ layer = "virtiofsd", cache = "never", path = "{}" }}'
# Also in its threads; its sandbox is namespaces of its own.
TRACED = """#!/bin/sh
case "$*" in *--version) exec {words} "$@";; esac
exec strace -f -qq -e trace=preadv,preadv2,pwritev,pwritev2 -o {log} {words} "$@"
"""
# A call that was interrupted by another thread's stands on two lines, of which the last has the result.
_CALL = re.compile(r"^\d+ +(?:<\.\.\. )?(preadv|pwritev)2?\b.*= \d+$", re.MULTILINE)


@dataclass(frozen=True)
class Seen:
    """What the probe left of the one trial, and the calls of the daemon."""

    raw: Path
    subject: Subject
    calls: list[str]
    totals: dict[str, float]

    def of(self, *shares: ShareMount) -> dict[str, float]:
        """As if these were the node's only mounts."""
        subject = self.subject.model_copy(update={"shares": shares})
        return dict(ShareRequestsProbe().parse(ProbeRecord(self.raw, Window(0.0, 1e9), subject)).totals())


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """One guest, with three mounts."""
    words = find_virtiofsd("rust")
    if words is None or shutil.which("strace") is None:
        pytest.skip("there is no virtiofsd, or no strace: run storlab image virtiofsd, and make setup")
    scratch = Path("/tmp") / secrets.token_hex(2)  # short: the path of a socket may have 107 characters
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        stack.callback(scratch.rmdir)
        folder = tmp_path_factory.mktemp("requests")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setattr(Laboratory, "scratch", property(lambda self: scratch))
        daemon, log = folder / "virtiofsd", folder / "calls"
        daemon.write_text(TRACED.format(words=shlex.join(words), log=log))
        daemon.chmod(0o755)
        lab = Laboratory(folder)
        lab.execute(STUDY.format(daemon=TRACER.format(daemon), reads=READS, writes=WRITES, nine=OF_9P))
        (record,) = lab.records()
        assert record.status == "done", record.reason
        assert lab.leftovers() == []
        raw = lab.run_folder.trial_folder(1) / "v" / "probe-share-requests"
        rows = lab.run_folder.metrics.filter(node="v", source="probe:share-requests")
        totals = dict(rows.select("metric", "value").iter_rows())
        yield Seen(raw, read_subject(raw), _CALL.findall(log.read_text()), totals)


@needs_guests
def test_reads_and_writes_of_virtiofs_are_those_of_the_load_and_of_the_daemon(seen: Seen) -> None:
    used, _ = (each for each in seen.subject.shares if each.protocol == "fuse")
    found = seen.of(used)
    assert (found["requests.read"], found["requests.write"]) == (READS, WRITES)
    assert (seen.calls.count("preadv"), seen.calls.count("pwritev")) == (READS, WRITES)
    assert found["requests"] == READS + WRITES + found["requests.metadata"]
    assert found["requests.metadata"] > 0
    assert WRITES * 8192 < found["requests.bytes"] < WRITES * 8192 + 100 * found["requests"], "with headers"
    assert found["replies.bytes"] > READS * 8192


@needs_guests
def test_writes_of_9p_are_those_of_the_load(seen: Seen) -> None:
    (share,) = (each for each in seen.subject.shares if each.protocol == "9p")
    found = seen.of(share)
    assert (found["requests.read"], found["requests.write"]) == (0, OF_9P)


@needs_guests
def test_a_mount_that_nobody_uses_has_no_request(seen: Seen) -> None:
    _, unused = (each for each in seen.subject.shares if each.protocol == "fuse")
    assert set(seen.of(unused).values()) == {0.0}


@needs_guests
def test_the_metrics_are_of_all_mounts_together(seen: Seen) -> None:
    assert (seen.totals["requests.read"], seen.totals["requests.write"]) == (READS, WRITES + OF_9P)
    assert "requests.bytes" not in seen.totals, "those of 9p are not known"
