"""Studies with one mistake each, by hand, and what is reported about it.

Blank lines divide a text into blocks. Each line of a block that ends in ``#! words`` is a mistake: of the block's lines
with such a mark, its study has this one alone, and the message names this line and contains these words. A study that
lacks a title, a stack or a workload gets a sound one, so that its one mistake stands alone. ``FILE`` is a file layer.
"""

import re
from dataclasses import dataclass

from laboratory.samples import sample

_MARK = re.compile(r"\s*#! (.*)$", re.MULTILINE)
_FILE = '{ layer = "file", size = "64M" }'
_PARTS = {"title": 'title = "A sound study but for one thing"\n', "stack": 'stack = [{ layer = "directory" }]\n'}
_WORKLOAD = '\n[workload.load]\nfio = { rw = "write", size = "1M" }\n'


@dataclass(frozen=True)
class Mistake:
    """``line`` is from 1, ``wrong`` what is written there."""

    text: str
    line: int
    wrong: str
    says: str

    @property
    def name(self) -> str:
        """For a test: what is wrong, as it is written."""
        return self.wrong.strip()[:80]


def read(blocks: str, head: str = "") -> list[Mistake]:
    """All mistakes of all blocks; ``head`` begins each study."""
    found = []
    for block in blocks.replace("FILE", _FILE).strip("\n").split("\n\n"):
        lines = block.split("\n")
        marked = [number for number, line in enumerate(lines) if _MARK.search(line)]
        assert marked, f"nothing is marked in {block}"
        for number in marked:
            kept = [line for other, line in enumerate(lines) if other == number or other not in marked]
            found.append(_read(f"{head}{chr(10).join(kept)}\n"))
    return found


def completed(text: str) -> str:
    """With a title, a stack and a workload, where it has none."""
    whole = text
    top = re.split(r"^\[", text, maxsplit=1, flags=re.MULTILINE)[0]
    for part, sound in _PARTS.items():
        if not (re.search(rf"^\s*{part}\b", top, re.MULTILINE) or re.search(rf"^\[+{part}\b", text, re.MULTILINE)):
            whole = sound + whole
    return whole if re.search(r"^\[*workload\b", text, re.MULTILINE) else whole + _WORKLOAD


def _read(text: str) -> Mistake:
    whole = completed(text)
    (mark,) = _MARK.finditer(whole)
    line = whole[: mark.start(1)].count("\n") + 1
    bare = _MARK.sub("", whole)
    return Mistake(bare, line, bare.split("\n")[line - 1], mark[1])


def _of(name: str, head: str = "") -> list[Mistake]:
    """Those of a file beside this one."""
    return read(sample(__file__, f"{name}.txt"), head)


TOML = [*_of("toml"), *read("description = \"a\0b\"  #! illegal character '\\x00'")]
TOML += read("description = \"a\rb\"  #! illegal character '\\r'")
KEYS = _of("keys")
_LARGE = f"""
[factors]
long.levels = ["{"x" * 1000}"]  #! cannot be shown as a name in tables
number.levels = [1, {"9" * 1000}]  #! cannot be shown as a name in tables

[factors.a]  #! these factors make 1000000 cells, more than 10000
levels = {list(range(1000))}
[factors.b]
levels = {list(range(1000))}
"""
FACTORS = [*_of("factors"), *read(_LARGE)]
CLAIMS = _of("claims", head='factors = { mode = ["buffered", "direct", "sync"], jobs = [1, 4] }\n')
_HUGE = f'stack = [{{ layer = "file", size = "{"9" * 400}G" }}, {{ layer = "loop" }}]  #! is not a size'
STACKS = [*_of("stacks"), *read(_HUGE)]
CHAINS = _of("chains")
WORKLOADS, COMMANDS, METRICS, CRASH = (_of(name) for name in ("workloads", "commands", "metrics", "crash"))
GUESTS, NETWORKS = _of("guests"), _of("networks")
