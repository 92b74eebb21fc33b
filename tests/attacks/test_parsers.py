"""Files that others wrote, damaged: each parser reads them or refuses them in words, and quickly either way.

`make fuzz` makes 500 mutants of each parser's samples, FUZZ times: FUZZ=2000 makes a million. Else there are 200 or 20.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from polars.exceptions import PanicException

from attacks.mutations import mutant
from attacks.odd_files import Hang, bounded
from attacks.parsers import PARSERS
from attacks.readers import Parser

MEMORY = Path("/dev/shm")
FUZZ = "STORLAB_FUZZ" in os.environ
SEEDS, EACH = (1, 500) if FUZZ else (10, 20)  # mutants of one seed: making up a seed takes as long as dozens of them
SLOW = 2  # of those that take long, outside of `make fuzz`
TOGETHER = 50  # that are read at once
PATIENCE = 20  # s, for one of them
ENDLESS = 70_000  # bytes: what searches all that follows from each place takes minutes for them
ONCE = settings(max_examples=SEEDS, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
ANY_SEED = st.binary(min_size=8, max_size=8)  # not integers: of those, most would be small, and so the same every time


@pytest.fixture
def folder() -> Iterator[Path]:
    """One for each parser, where files cost no disk anything."""
    with tempfile.TemporaryDirectory(prefix="storlab-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


@cache
def made(parser: Parser) -> Sequence[bytes]:
    return parser.samples()


def survives(parser: Parser, seed: bytes, folder: Path, kept: Path, mutants: int = EACH) -> None:
    """Raises ``AssertionError`` with the seed, and where the mutant lies that a parser neither reads nor refuses."""
    choose, samples = random.Random(seed), made(parser)
    every = (mutant(samples, choose) for _ in range(mutants))
    if parser.together is None:
        _survives_each(parser, every, seed, folder, kept)
        return
    while some := list(islice(every, TOGETHER)):
        if not _survives_together(parser.together, some, folder):
            _survives_each(parser, some, seed, folder, kept)
            raise AssertionError(f"seed {seed.hex()}: all mutants are read alone, and not together")


def _survives_each(parser: Parser, every: Iterable[bytes], seed: bytes, folder: Path, kept: Path) -> None:
    with bounded(PATIENCE) as again:
        for number, data in enumerate(every):
            again()
            try:
                _is_read_or_refused(parser, data, folder)
            except BaseException as error:
                kept.write_bytes(data)
                raise AssertionError(f"seed {seed.hex()}, mutant {number}: {kept}") from error


def _is_read_or_refused(parser: Parser, data: bytes, folder: Path) -> None:
    try:
        parser.read(data, folder)
    except parser.refuses as error:
        assert str(error)


def _survives_together(read: Callable[[Sequence[bytes], Path], object], some: Sequence[bytes], folder: Path) -> bool:
    """Where not, each is tried alone, to tell which it is."""
    with suppress(Exception, Hang, PanicException), bounded(PATIENCE):
        read(some, folder)
        return True
    return False


@pytest.mark.timeout(0)  # each mutant has a limit of its own
@pytest.mark.parametrize("name", PARSERS)
@ONCE
@given(seed=ANY_SEED)
def test_what_is_damaged_is_read_or_refused(name: str, seed: bytes, folder: Path, tmp_path: Path) -> None:
    parser = PARSERS[name]
    survives(parser, seed, folder, tmp_path / "mutant", EACH if FUZZ or not parser.slow else SLOW)


@pytest.mark.parametrize("name", PARSERS)
def test_samples_are_sound(name: str, folder: Path) -> None:
    for sample in PARSERS[name].samples():
        PARSERS[name].read(sample, folder)


@pytest.mark.parametrize("name", PARSERS)
def test_what_repeats_without_end_holds_no_parser_up(name: str, folder: Path) -> None:
    parser = PARSERS[name]
    sample = min(made(parser), key=len)
    for piece in (b"\n", b" ", b"(", b"1,", b"a: "):
        endless = sample[: len(sample) // 2] + (piece * ENDLESS)[:ENDLESS] + sample[-200:]
        with bounded(PATIENCE), suppress(parser.refuses):
            parser.read(endless, folder)
