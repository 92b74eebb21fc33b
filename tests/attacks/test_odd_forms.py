"""Files in the forms in which people have them are read right, or refused, or warned of."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given

from attacks.odd_forms import AROUND, FORMS, INSIDE, Read, read, wrong
from attacks.test_parsers import ANY_SEED, FUZZ, ONCE

EACH = 200 if FUZZ else 8  # forms of one seed


@cache
def sound(name: str) -> Sequence[tuple[bytes, Read]]:
    forms = FORMS[name]
    with tempfile.TemporaryDirectory() as folder:
        return [(sample, read(forms.read, sample, Path(folder))) for sample in forms.samples()]


@pytest.mark.parametrize("form", AROUND)
@pytest.mark.parametrize("name", FORMS)
def test_what_stands_around_or_before_lines_makes_no_other_figures(name: str, form: str, tmp_path: Path) -> None:
    for sample, expected in sound(name):
        assert not expected.refused
        found = read(FORMS[name].read, AROUND[form](sample), tmp_path)
        assert not wrong(found, expected)
        assert found.refused or found.warnings != expected.warnings or len(found.trials) == len(expected.trials)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [name for name, forms in FORMS.items() if forms.inside])
@ONCE
@given(seed=ANY_SEED)
def test_what_is_left_out_doubled_moved_or_appended_makes_no_other_figures(
    name: str, seed: bytes, tmp_path: Path
) -> None:
    choose, samples = random.Random(seed), sound(name)
    for number in range(EACH):
        form = choose.choice(FORMS[name].inside)
        (sample, expected), (more, also) = choose.choice(samples), choose.choice(samples)
        odd = sample + more if form == "appended" else INSIDE[form](sample, choose)
        if FORMS[name].whole(odd, sample):
            continue
        found = wrong(read(FORMS[name].read, odd, tmp_path), expected, *([also] if form == "appended" else []))
        if found:
            (tmp_path / "odd").write_bytes(odd)
        assert not found, f"seed {seed.hex()}, number {number}, {form}: {tmp_path / 'odd'}"
