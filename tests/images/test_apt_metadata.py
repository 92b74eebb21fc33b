"""Versions are ordered as dpkg orders them, and the newest kernel is found among many."""

from __future__ import annotations

import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.images import recipe
from storlab.images.apt import compare_versions, newest, parse_stanzas, taken_over

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg") is None, reason="this is no Debian: dpkg is not there to ask")

SHOWN = """Package: linux-image-6.12.43+deb12-amd64
Source: linux-signed-amd64 (6.12.43+1~bpo12+1)
Version: 6.12.43-1~bpo12+1
Description: Linux 6.12 for 64-bit PCs (signed)
 The Linux kernel 6.12: and modules
 for use on PCs.
Depends: kmod, linux-base (>= 4.3~)

Package: linux-image-6.12.117+deb12-amd64
Version: 6.12.117-1~deb12u1

Package: linux-image-6.12.117+deb12-rt-amd64
Version: 6.12.117-2

Package: broken
"""


def test_stanzas_have_their_fields_and_what_follows_on() -> None:
    first, second, third, broken = parse_stanzas(SHOWN)
    assert first["Depends"] == "kmod, linux-base (>= 4.3~)"
    assert first["Description"].splitlines()[1] == "The Linux kernel 6.12: and modules"
    assert second["Version"] == "6.12.117-1~deb12u1"
    assert (third["Package"], broken) == ("linux-image-6.12.117+deb12-rt-amd64", {"Package": "broken"})


@needs_dpkg
def test_the_newest_kernel_is_no_real_time_one_and_not_the_last_by_name() -> None:
    found = newest(parse_stanzas(SHOWN), re.compile(r"linux-image-6\.12\.[\d.]+\+deb12-amd64"))
    assert found is not None and found["Package"] == "linux-image-6.12.117+deb12-amd64"
    assert newest([], recipe.KERNEL) is None


def test_the_recipe_takes_only_generic_kernels_of_its_series() -> None:
    names = ["linux-image-6.12.90+deb12.1-amd64", "linux-image-6.12.43+deb12-amd64"]
    assert all(recipe.KERNEL.fullmatch(name) for name in names)
    others = ["linux-image-6.12-amd64", "linux-image-6.12.43+deb12-cloud-amd64", "linux-image-6.12.43+deb12-rt-amd64"]
    assert not any(recipe.KERNEL.fullmatch(name) for name in others)


@needs_dpkg
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0", "1.1"),
        ("1.9", "1.10"),
        ("1.0~rc1", "1.0"),
        ("1.0~~", "1.0~"),
        ("1.0", "1.0a"),
        ("1.0a", "1.0+"),
        ("9", "1:1"),
        ("6.12.57-1~bpo12+1", "6.12.57-1"),
        ("2.3.2-2~bpo12+2", "2.3.2-2"),
    ],
)
def test_versions_are_ordered_as_deb_version_says(older: str, newer: str) -> None:
    assert compare_versions(older, newer) < 0 < compare_versions(newer, older)


@given(st.text())
def test_any_text_is_read_without_a_fault(text: str) -> None:
    parse_stanzas(text)


def test_only_what_concerns_reaching_a_mirror_is_taken_over_from_the_host() -> None:
    dump = "\n".join(
        [
            'Acquire "";',
            'Acquire::http::Proxy "http://proxy:3128";',
            'Acquire::https::CaInfo "/etc/ca.pem";',
            'Acquire::Check-Date "false";',
            'Acquire::IndexTargets::deb::DEP-11::MetaKey "x";',
            'Acquire::Languages:: "none";',
        ]
    )
    kept = taken_over(dump)
    assert "proxy:3128" in kept and "CaInfo" in kept and "Check-Date" in kept
    assert "DEP-11" not in kept and "Languages" not in kept
