"""Studies, scripts and what programs print, as files beside the tests that use them."""

from __future__ import annotations

from pathlib import Path


def sample(test: str, name: str, /, **words: object) -> str:
    """The text of a file beside the test whose ``__file__`` this is; each ``@word@`` of these is filled in."""
    text = (Path(test).parent / name).read_text()
    for word, value in words.items():
        assert f"@{word}@" in text, f"{name} has no @{word}@"
        text = text.replace(f"@{word}@", str(value))
    return text
