"""Files that others wrote, damaged: each parser reads them or refuses them in words, and quickly either way.

`make fuzz` makes 500 mutants of each parser's samples, FUZZ times: FUZZ=2000 makes a million. Else there are 200 or 20.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from polars.exceptions import PanicException

from attacks.mutations import mutant
from attacks.odd_files import Hang, bounded
from attacks.parsers import PARSERS, Parser
from storlab.study.study import parse_study

STUDIES = sorted((Path(__file__).parents[2] / "src" / "storlab" / "studies").glob("*.toml"))
MEMORY = Path("/dev/shm")
FUZZ = "STORLAB_FUZZ" in os.environ
EACH = 50 if FUZZ else 20  # mutants of one seed: making up a seed takes longer than a parser
PATIENCE = 20  # s, for one of them
ONCE = settings(max_examples=10, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.fixture
def folder() -> Iterator[Path]:
    """One for each parser, where files cost no disk anything."""
    with tempfile.TemporaryDirectory(prefix="storlab-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


@cache
def made(parser: Parser) -> Sequence[bytes]:
    return parser.samples()


def survives(parser: Parser, seed: int, folder: Path, kept: Path, mutants: int = EACH) -> None:
    """Raises ``AssertionError`` with the seed, and where the mutant lies that a parser neither reads nor refuses."""
    choose, samples = random.Random(seed), made(parser)
    every = [mutant(samples, choose) for _ in range(mutants)]
    if parser.together is not None and _survive_together(parser.together, every, folder):
        return
    for number, data in enumerate(every):
        try:
            with bounded(PATIENCE):
                parser.read(data, folder)
        except parser.refuses as error:
            assert str(error)
        except BaseException as error:
            kept.write_bytes(data)
            raise AssertionError(f"seed {seed}, mutant {number}: {kept}") from error
    assert parser.together is None, f"seed {seed}: all mutants are read alone, and not together"


def _survive_together(read: Callable[[Sequence[bytes], Path], object], every: Sequence[bytes], folder: Path) -> bool:
    """Where not, each is tried alone, to tell which it is."""
    with suppress(Exception, Hang, PanicException), bounded(PATIENCE):
        read(every, folder)
        return True
    return False


@pytest.mark.timeout(0)  # each mutant has a limit of its own
@pytest.mark.parametrize("name", PARSERS)
@ONCE
@given(seed=st.integers(0, 2**62))
def test_what_is_damaged_is_read_or_refused(name: str, seed: int, folder: Path, tmp_path: Path) -> None:
    parser = PARSERS[name]
    survives(parser, seed, folder, tmp_path / "mutant", EACH if FUZZ or not parser.slow else 2)


@pytest.mark.parametrize("name", PARSERS)
def test_samples_are_sound(name: str, folder: Path) -> None:
    for sample in PARSERS[name].samples():
        PARSERS[name].read(sample, folder)


STUDY = Parser(
    lambda data, _: parse_study(data, "study.toml", lambda name: ""),
    lambda: [path.read_bytes() for path in STUDIES],
)


@pytest.mark.timeout(0)
@ONCE
@given(seed=st.integers(0, 2**62))
def test_a_study_that_is_damaged_is_read_or_refused(seed: int, folder: Path, tmp_path: Path) -> None:
    survives(STUDY, seed, folder, tmp_path / "mutant", mutants=10)
