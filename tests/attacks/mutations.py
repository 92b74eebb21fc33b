"""Files changed at random: a value for another, bytes turned, cut, doubled, spliced; the same for the same seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -1e308, 1e308, float("nan"), float("inf"),
    "", "x", "../../x", "/etc/passwd", "\x1b[2J", "\ud800", "\u202e", "0" * 400, "x" * 70_000, "2026-01-01T00:00:00Z",
    [], [None], [[[[]]]], {}, {"": None}, {"x": {"x": {}}},
)  # fmt: skip
"""In place of a value of a record."""
BYTES = (
    b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"-", b"9" * 400, b"[" * 2000, b"nan", b"\n", b",", b'"', b"\x1b[2J",
)  # fmt: skip
TOKENS = (
    *BYTES, b"0", b"00", b"-1", b"1e400", b"-inf", b"9" * 19, b"9" * 5000, b"18446744073709551616", b"0x10", b"1_000",
    b"1.5", "٣".encode(), "²".encode(), "½".encode(), "\u2028".encode(), "\x85".encode(), b"\r", b"\x0b", b"\x00",
    b"\xff", b"true", b"null", b'{"x":' * 2000, b"(" * 2000, b"%", b":", b";", b"=", b"\t", b" ", b"../../x",
)  # fmt: skip
"""In place of a number, a word or a sign."""
LONG = tuple(piece * (70_000 // len(piece)) for piece in b'x~ ~\t~\n~0~9~.~+~"~(~[~{~ 1~a ~1,~1.~x:~x=1\n'.split(b"~"))
"""The same, and rarely: lines with which an expression that goes back and forth would take for ever."""
_LARGEST = 1 << 18  # bytes; more shows nothing new, and takes its time
_TOKEN = re.compile(rb"[0-9.]+|[A-Za-z_]+|\s+|[^\sA-Za-z_0-9.]")


def mutant(samples: Sequence[bytes], choose: random.Random) -> bytes:
    """One of the samples, changed as its form suggests, as any text may be, or as any file may be."""
    data = choose.choice(samples)
    action = choose.random()
    if action < 0.1:
        return spliced(data, choose.choice(samples), choose)
    if action < 0.4:
        return mutated(data, choose)
    if action > 0.7 and data[:1] in (b"{", b"["):
        with suppress(ValueError):
            return mutated_document(data, choose)[:_LARGEST]
    return mutated_tokens(data, choose)[:_LARGEST]


def mutated_document(data: bytes, choose: random.Random) -> bytes:
    """JSON, or one of several lines of it, with another value."""
    if data.startswith(b"{\n") or data.count(b"\n") < 2:
        return mutated_json(data, choose)
    lines = data.split(b"\n")
    at = choose.randrange(len(lines))
    lines[at] = mutated_json(lines[at], choose) if lines[at] else b"{}"
    return b"\n".join(lines)


def mutated_tokens(data: bytes, choose: random.Random) -> bytes:
    """A few numbers, words or signs are others, or missing, or there twice."""
    for _ in range(choose.choice((1, 1, 2, 4))):
        found = _TOKEN.search(data, choose.randrange(len(data) + 1))
        if found is None:
            return data
        before, after = data[: found.start()], data[found.end() :]
        action = choose.randrange(6)
        if action == 0:
            data = before + after
        elif action == 1:
            data = before + found[0] * choose.choice((2, 2, 3, 100 if len(found[0]) < 100 else 2)) + after
        elif action == 2:
            other = _TOKEN.search(data, choose.randrange(len(data) + 1))
            data = before + (other[0] if other else b"") + after
        else:
            data = before + choose.choice(TOKENS if choose.random() < 0.99 else LONG) + after
    return data


def spliced(data: bytes, other: bytes, choose: random.Random) -> bytes:
    """The beginning of a file and the end of another, or a piece of one within the other; often at ends of lines."""
    first, last = (_edge(each, choose) for each in (data, other))
    if choose.random() < 0.5:
        return data[:first] + other[last:]
    return data[:first] + other[last : last + choose.choice((1, 50, 1000))] + data[first:]


def _edge(data: bytes, choose: random.Random) -> int:
    at = choose.randrange(len(data) + 1)
    return data.find(b"\n", at) + 1 if choose.random() < 0.5 else at


def mutated_json(text: bytes, choose: random.Random) -> bytes:
    """One value, or one key, of a JSON document is another; or the document is damaged as any file may be."""
    tree = json.loads(text)
    places = list(_places(tree))
    if not places or choose.random() < 0.2:
        return mutated(text, choose)
    holder, key = choose.choice(places)
    action = choose.random()
    if action < 0.7:
        holder[key] = choose.choice(VALUES)
    elif action < 0.8:
        del holder[key]
    elif isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[choose.choice(["", "x", "trial", "\x1b", "x" * 5000])] = holder.pop(key)
    return json.dumps(tree).encode()


def _places(tree: Any) -> Any:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(value)


def mutated(data: bytes, choose: random.Random) -> bytes:
    """A few bytes are others, or missing, or there twice, or have another bit."""
    for _ in range(choose.choice((1, 1, 1, 2, 5))):
        begin = choose.randrange(len(data) + 1)
        end = min(len(data), begin + choose.choice((0, 1, 1, 2, 8, 100)))
        action = choose.randrange(7)
        if action == 0:
            data = data[:begin]
        elif action == 1:
            data = data[:begin] + data[end:]
        elif action == 2:
            data = data[:end] + data[begin:]
        elif action == 3:
            data = data[:begin] + choose.randbytes(end - begin) + data[end:]
        elif action == 4:
            turned = bytes(byte ^ 1 << choose.randrange(8) for byte in data[begin : begin + 1])
            data = data[:begin] + turned + data[begin + 1 :]
        else:
            data = data[:begin] + choose.choice(BYTES) + data[end:]
    return data
