"""The extensions of this folder do what Storlab expects of them. Run it by ``pytest``, beside an installed Storlab."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from storlab_examples.card_traffic import CardTrafficProbe
from storlab_examples.dd import DdWorkload
from storlab_examples.dd_results import DdImporter
from storlab_examples.dirty_pages import DirtyPagesProbe
from storlab_examples.overlay import OverlayLayer
from storlab_examples.redis import RedisLayer
from storlab_examples.sshfs import SshdLayer, SshfsLayer

from storlab.api import ExitRecord, Interface, ProbeRecord, Subject, Window
from storlab.conformance import check_extension

DD = b"1000+0 records in\n1000+0 records out\n4096000 bytes (4.1 MB, 3.9 MiB) copied, 0.5 s, 8.2 MB/s\n"
MEMINFO = "MemTotal:       24603424 kB\nDirty:              {} kB\nWriteback:             0 kB\n"
CARDS = "Inter-|   Receive  |  Transmit\n face |bytes packets\n  eth0: {} 7 0 0 0 0 0 0 4096 9 0 0 0 0 0 0\n"
WINDOW = Window(100.0, 104.0)


def test_the_layers() -> None:
    check_extension(OverlayLayer, {"metacopy": True})
    check_extension(RedisLayer, {"appendfsync": "no"})
    check_extension(SshdLayer)
    check_extension(SshfsLayer)


def test_the_workload(tmp_path: Path) -> None:
    (tmp_path / "stderr").write_bytes(DD)
    (tmp_path / "exit.json").write_text(json.dumps(ended("dd")))
    check_extension(DdWorkload, {"count": 1000}, [tmp_path])


def test_the_probe_of_the_page_cache(tmp_path: Path) -> None:
    samples(tmp_path, "/proc/meminfo", (MEMINFO.format(4 * at) for at in range(5)))
    check_extension(DirtyPagesProbe, examples=[ProbeRecord(tmp_path, WINDOW, Subject(group="host"))])


def test_the_probe_of_cards(tmp_path: Path) -> None:
    samples(tmp_path, "/proc/net/dev", (CARDS.format(1500 * at) for at in range(5)))
    subject = Subject(group="vm", interfaces=(Interface(name="eth0", address="10.0.0.2"),))
    check_extension(CardTrafficProbe, examples=[ProbeRecord(tmp_path, WINDOW, subject)])


def test_the_importer() -> None:
    check_extension(DdImporter, examples=[DD, DD * 2])


def ended(program: str) -> Mapping[str, Any]:
    """How a command ended well, as the trial's folder has it."""
    return vars(ExitRecord((program,), 0, None, False, None, 0.0, 1.0, 2.0, 0.5, 0.25, 2**21, 0))


def samples(raw: Path, path: str, contents: Iterable[str]) -> None:
    """What ``sampling`` leaves of one file, looked at every second."""
    lines = [{"paths": [path], "interval": 1.0}]
    lines += [{"t": 100.0 + at, "late": 0.0, "contents": [text]} for at, text in enumerate(contents)]
    (raw / "samples.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
