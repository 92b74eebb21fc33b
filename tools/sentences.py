"""Part of ``make lint``: sentences where findings belong, by ``python -m tools.sentences``.

What the analysis, time series and records find are findings, worded by ``storlab.report.language``. Here a string is a
sentence if it has more than four words, and begins with a capital or ends with a full stop. Errors keep their words.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "storlab"
CHECKED = ("analysis", "timeseries", "records", "findings", "measurements.py", "metrics.py")
ALLOWED = {"records/imported.py": "the caution of an import, whose words each importer has a part of"}
_FEWEST = 5  # words


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each that is no docstring and no error's."""
    skipped = {id(part) for node in ast.walk(tree) if _is_aside(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) not in skipped and (text := _text(node)) and _is_sentence(text):
            yield node.lineno, text  # type: ignore[attr-defined]
            skipped |= {id(part) for part in ast.walk(node)}


def _is_aside(node: ast.AST) -> bool:
    """An error, or a string that stands alone: a docstring."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name.endswith(("Error", "Unsupported")) or name == "compile"
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_sentence(text: str) -> bool:
    return len(text.split()) >= _FEWEST and (text[0].isupper() or text.rstrip().endswith("."))


def found() -> Iterator[str]:
    """Each sentence that is not allowed, with its place."""
    for name in CHECKED:
        path = SOURCE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            place = file.relative_to(SOURCE).as_posix()
            for line, text in () if place in ALLOWED else sentences(ast.parse(file.read_text())):
                yield f"src/storlab/{place}:{line}: a sentence, where a finding belongs: {text}"


if __name__ == "__main__":
    every = list(found())
    sys.stdout.writelines(f"{each}\n" for each in every)
    sys.exit(bool(every))
