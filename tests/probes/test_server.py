"""Probe ``server``: what MariaDB and PostgreSQL answered, as differences over the measured phase; and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import ParseError
from storlab.measurements import Measurements
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.server import BEGAN, COUNT, NOW, REACHED, Checkpoint, Look, ServerProbe, checkpoints, read_answers
from storlab.probes.subject import Service, Subject

MARIADB = Subject(group="host", servers=(Service(dialect="mysql", address="/x/socket", here=True),))
POSTGRES = Subject(group="host", servers=(Service(dialect="postgresql", address="10.0.0.1:5432", here=True),))
OTHERS = Subject(
    group="host",
    servers=(
        Service(dialect="nbd", address="/x/nbd", here=True),
        Service(dialect="mysql", address="10.0.0.1:3306", here=False),
    ),
)
WINDOW = Window(100.0, 110.0)


def answer(t: float, log: int, dirty: int) -> str:
    return (
        f"{t:.6f} INNODB_OS_LOG_WRITTEN\t{log}\n{t:.6f} INNODB_DBLWR_PAGES_WRITTEN\t{log // 10}\n"
        f"{t:.6f} INNODB_BUFFER_POOL_PAGES_DIRTY\t{dirty}\n{t:.6f} end\t0\n"
    )


ANSWERS = (
    answer(98.5, 1000, 3) + answer(99.5, 2000, 5) + answer(104, 5000, 90) + answer(111, 9000, 7) + answer(112, 1, 1)
)


def record(folder: Path, text: str = ANSWERS, subject: Subject = MARIADB) -> ProbeRecord:
    for service in subject.servers:
        (folder / f"{service.dialect}.log").write_text(text)
    return ProbeRecord(folder, WINDOW, subject)


def parsed(folder: Path, text: str = ANSWERS, subject: Subject = MARIADB) -> Measurements:
    return ServerProbe().parse(record(folder, text, subject))


def test_counts_are_those_between_the_last_answer_before_and_the_first_after(tmp_path: Path) -> None:
    found = parsed(tmp_path)
    assert found.totals() == {"log.bytes": 7000, "doublewrite.pages": 700, "dirty.pages.max": 90}
    assert found.series.select("metric", "t", "value").rows() == [("dirty.pages", 4.0, 90.0)]
    text = "99 log.bytes\t10\n99 log.full_pages\t1\n99 end\t0\n110 log.bytes\t30\n110 log.full_pages\t4\n110 end\t0\n"
    assert parsed(tmp_path, text, POSTGRES).totals() == {"log.bytes": 20, "log.full_pages": 3}
    assert parsed(tmp_path, "", OTHERS).metrics.is_empty()
    cut = ANSWERS + "113.000000 INNODB_OS_LOG_WRITTEN\t12"
    assert len(read_answers(record(tmp_path, cut).raw / "mysql.log")) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no answer both before the load and after it"),
     (answer(99, 1, 1), "no answer both before the load and after it"),
     (answer(99, 9000, 1) + answer(111, 10, 1), "ran backwards"),
     ("ERROR 2002 (HY000): Can't connect\n", "no answer both")],
)  # fmt: skip
def test_what_can_not_be_told_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=said):
        parsed(tmp_path, text)


def postgres(*answers: tuple[float, int, int]) -> list[Checkpoint]:
    """Each: time, how many, when the last finished one began."""
    return checkpoints([Look(t, {COUNT: n, BEGAN: 1000 + at, NOW: int(1000 * (1000 + t))}) for t, n, at in answers])


def innodb(*reached: int) -> list[Checkpoint]:
    return checkpoints([Look(float(t), {REACHED: at}) for t, at in enumerate(reached)])


def test_checkpoints_last_until_the_control_file_has_them_or_for_as_long_as_they_move() -> None:
    assert postgres((8, 0, 0), (9, 0, 0), (10, 1, 0), (11, 1, 0), (12, 1, 9), (13, 1, 9)) == [Checkpoint(9, 12)]
    assert postgres((2, 0, 0), (9, 0, 0), (10, 1, 6), (11, 1, 6)) == [Checkpoint(6, 10)]
    assert postgres((9, 0, 0), (10, 1, 0), (11, 1, 0)) == [Checkpoint(9, None)]
    assert innodb(5, 5, 9, 12, 12, 13, 13, 13, 13, 20, 20, 20, 20) == [Checkpoint(1, 5), Checkpoint(8, 9)]
    assert innodb(5, 5, 5) == []
    assert innodb(5, 6) == [Checkpoint(0, None)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 3)), max_size=20))
def test_whatever_is_answered_they_end_after_they_begin(steps: list[tuple[int, int, int]]) -> None:
    count = began = reached = 0
    of_postgres, of_innodb = list[Look](), list[Look]()
    for t, (more, later, further) in enumerate(steps):
        count, began, reached = count + more, began + later, reached + further
        of_postgres.append(Look(float(t), {COUNT: count, BEGAN: began, NOW: 1000 * t}))
        of_innodb.append(Look(float(t), {REACHED: reached}))
    for found in (checkpoints(of_postgres), checkpoints(of_innodb)):
        assert all(each.end is None or each.begin < each.end for each in found)
        assert all(0 <= each.begin < len(steps) for each in found)
