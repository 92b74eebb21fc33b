"""The bytes that a guest gets before all others."""

from __future__ import annotations

import struct
import time

from storlab.nodes.kinds.vm.guest import ENTROPY, MAGIC, preamble


def test_it_has_the_time_and_entropy_that_no_other_guest_gets() -> None:
    before = time.time_ns()
    first, second = preamble(), preamble()
    assert len(first) == len(second) == len(MAGIC) + 8 + ENTROPY
    assert first.startswith(MAGIC)
    (told,) = struct.unpack_from(">Q", first, len(MAGIC))
    assert before <= told <= time.time_ns()
    assert first[-ENTROPY:] != second[-ENTROPY:]
