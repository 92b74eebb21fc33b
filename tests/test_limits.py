"""Each limit of the table is kept: what is at it is taken, and what is one beyond is refused in one sentence."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from tools.limits_reference import reference

import storlab.run.planning.plan as planning
from storlab.base import limits
from storlab.base.errors import RecordsError, StorlabError
from storlab.base.reading import lines_of, read_file
from storlab.cli.import_ import files as importing
from storlab.cli.import_ import paths
from storlab.nodes.agent.protocol import Answer, Data, Done, Event, Exited, Sampled, Stdout
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.nodes.node import Node
from storlab.nodes.process import Process
from storlab.run.limits import parse_extent
from storlab.run.recovery.journal import Journal, read_pending
from storlab.run.trial import fetch
from storlab.run.trial.fetch import Allowance
from storlab.study import checks
from storlab.study import study as studies
from storlab.study.factors import Factor, Level
from storlab.study.substitution import Outgrown, Substitution
from storlab.study.toml_text import read_toml
from storlab.tools.importer import importer_of

SOUND = 'title = "x"\nstack = [{ layer = "directory" }]\n[workload.load]\nfio = { rw = "write", size = "1M" }\n'
DISK = '[nodes.n]\nkind = "vm"\nextra.d = { count = N, stack = [{ layer = "file", size = "1M"}, { layer = "nvme" }] }\n'
NODE = cast("Any", SimpleNamespace(name="n"))


def study(text: str) -> object:
    return studies.parse_study((SOUND + text).encode(), "s.toml", lambda name: name)


def toml(text: str) -> object:
    return read_toml(text.encode(), "s.toml")


def file_of(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def cells(count: int) -> None:
    said: list[str] = []
    factor = Factor("f", tuple(Level(str(number), number, ()) for number in range(count)))
    checks._limit_cells([factor], lambda _, message: said.append(message))
    if said:
        raise StorlabError(said[0])


def nodes(count: int) -> object:
    full, rest = divmod(count, limits.GROUP_NODES)
    counts = [limits.GROUP_NODES] * full + [rest] * bool(rest)
    return study("".join(f"[nodes.n{at}]\ncount = {each}\n" for at, each in enumerate(counts)))


def files(count: int) -> None:
    allowance = Allowance()
    for _ in range(count):
        allowance.take_file(NODE)


def journal(path: Path, size: int) -> object:
    (path / "journal.jsonl").write_bytes(b'{"event":"%s"}\n' % (b"x" * (size - 13)))
    return read_pending(path / "journal.jsonl")


def folder(monkeypatch: pytest.MonkeyPatch, path: Path, count: int) -> object:
    monkeypatch.setattr(paths, "all_files", lambda _: [path] * count)
    monkeypatch.setattr(paths, "head_of", lambda _: b'{"fio version" : "fio-3.33"')
    return paths.files_of(importer_of("fio"), path)


def compared(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(planning, "count_of_pairs", lambda _: count)
    planning._refuse_too_many_comparisons(cast("Any", study("")))


def agent(event: Event, size: int) -> Any:
    """All that it answers is this, and so many bytes with it."""

    async def request(*_: object, **__: object) -> AsyncIterator[Answer]:
        yield Answer(1, event, bytes(size))
        yield Answer(1, ENDED if isinstance(event, Stdout) else Done())

    return SimpleNamespace(lost=None, patience=0.0, next_id=lambda: 1, request=request, stop=AsyncMock())


ENDED = Exited(0, None, False, None, None, 1, 1, 0, 0, 1, 0, 0)


async def printed(size: int) -> None:
    await Process("n", agent(Stdout(1), size), ("yes",), {}, {Stdout: None}).wait()


async def sampled(size: int) -> None:
    async for _ in Node("n", agent(Sampled(1, 1, 0, [size]), size)).sample(["/x"], 1.0):
        pass


async def left(path: Path, size: int) -> None:
    file = fetch._File("/load", "x", ["x"], size)
    await fetch._fetch(Node("n", agent(Data(), 1)), file, path, Allowance())
    if (note := path / "x.left-out").exists():
        raise StorlabError(note.read_text().strip())
    (path / "x").unlink()


Try = Callable[[int, Path, pytest.MonkeyPatch], object]
TRIED: dict[str, Try] = {
    "STUDY_TEXT": lambda n, *_: toml("#" * n),
    "DOTS": lambda n, *_: toml(f"x = '{'.' * n}'"),
    "NESTING": lambda n, *_: toml(f"x = {'[' * (n - 1)}{']' * (n - 1)}"),
    "FACTORS": lambda n, *_: study("[factors]\n" + "".join(f"f{at} = [1]\n" for at in range(n))),
    "CELLS": lambda n, *_: cells(n),
    "CELL_PARTS": lambda n, *_: Substitution({}, ()).apply([1] * (n - 1), ("x",)),
    "COMPARISONS": lambda n, _, patch: compared(patch, n),
    "ROUNDS": lambda n, *_: parse_extent(str(n)),
    "GROUP_NODES": lambda n, *_: study(f"[nodes.n]\ncount = {n}\n"),
    "NODES": lambda n, *_: nodes(n),
    "DISKS": lambda n, *_: study(DISK.replace("N", str(n))),
    "NAME": lambda n, *_: study(f"[nodes.{'n' * n}]\n"),
    "LABEL": lambda n, *_: study(f'[factors]\nf = ["{"x" * n}"]\n'),
    "OUTPUT": lambda n, *_: asyncio.run(printed(n)),
    "SAMPLED": lambda n, *_: asyncio.run(sampled(n)),
    "FILE": lambda n, path, _: asyncio.run(left(path, n)),
    "FILES": lambda n, *_: files(n),
    "FETCHED": lambda n, *_: Allowance().take(NODE, n),
    "JOURNAL_LINE": lambda n, path, _: journal(path, n),
    "RECORD": lambda n, path, _: read_file(file_of(path / "f", n), limits.RECORD),
    "RAW": lambda n, path, _: read_file(file_of(path / "f", n)),
    "LINE": lambda n, path, _: list(lines_of(file_of(path / "f", n))),
    "IMPORTED": lambda n, path, _: paths.head_or_all(file_of(path / "f", n), importer_of("fio")),
    "IMPORTED_TOGETHER": lambda n, path, _: importing._refuse_too_much(
        [file_of(path / "a", n - 5), file_of(path / "b", 5)]
    ),
    "IMPORTED_FILES": lambda n, path, patch: folder(patch, path, n),
    "IMPORTED_ROWS": lambda n, *_: importer_of("csv").read(b"IOPS\n" + b"1\n" * n, "t.csv", {"value": ["IOPS"]}),
}


@pytest.mark.parametrize("limit", limits.TABLE, ids=lambda limit: limit.name)
def test_what_is_at_a_limit_is_taken_and_what_is_beyond_is_refused_in_one_sentence(
    limit: limits.Limit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = TRIED[limit.name]
    attempt(limit.most, tmp_path, monkeypatch)
    with pytest.raises((StorlabError, OSError, Outgrown)) as refused:
        attempt(limit.most + 1, tmp_path, monkeypatch)
    assert "\n" not in str(refused.value)


def test_an_entry_that_nobody_could_read_back_is_not_written(tmp_path: Path) -> None:
    node = NodeIdentity("n", "local", "", Machine("id", "boot"))
    with Journal(tmp_path / "journal.jsonl") as written, pytest.raises(RecordsError, match="longer than any may be"):
        written.register(node, "scratch.remove", {"path": "x" * limits.JOURNAL_LINE})
    assert read_pending(tmp_path / "journal.jsonl") == written.pending == []


def test_the_page_of_limits_is_up_to_date() -> None:
    page = Path(__file__).parents[1] / "docs" / "reference" / "limits.md"
    assert page.read_text() == reference(), "again: python -m tools.limits_reference > docs/reference/limits.md"
