"""The gallery is what the studies and runs.json make of it, and its pictures are small."""

from __future__ import annotations

import pytest
from tools.gallery_pages import GALLERY, PICTURES, pages, read_gallery

from storlab.study.study import named_studies

MOST = 150_000
"""Bytes of a picture."""


@pytest.mark.parametrize("file", pages(read_gallery()))
def test_a_page_of_the_gallery_is_what_its_study_and_run_make_of_it(file: str) -> None:
    written = (GALLERY / file).read_text("utf-8")
    assert written == pages(read_gallery())[file], "write it again: .venv/bin/python -m tools.gallery_pages"


def test_a_study_has_a_picture_or_a_reason_why_not() -> None:
    gallery = read_gallery()
    assert set(gallery.runs) | set(gallery.not_run) == set(named_studies())
    assert set(gallery.runs).isdisjoint(gallery.not_run)
    assert {f"{name}.png" for name in gallery.runs} == {picture.name for picture in PICTURES.glob("*.png")}


def test_pictures_are_small() -> None:
    assert all(picture.stat().st_size <= MOST for picture in PICTURES.glob("*.png"))
