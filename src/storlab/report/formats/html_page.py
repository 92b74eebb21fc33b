"""What all HTML pages are made with: templates that escape every text, and scripts that a page's policy allows."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from storlab.text import plain

_TEMPLATES = Path(__file__).parent / "templates"


def environment(filters: Mapping[str, Callable[..., Any]]) -> jinja2.Environment:
    """For templates of pages. Markup is ours and stays; every other text loses control characters and is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    made.filters |= filters
    return made


def script(*names: str) -> dict[str, Markup | str]:
    """These scripts as one, and the hash by which the page's policy allows it and no other."""
    text = "".join((_TEMPLATES / name).read_text("utf-8") for name in names)
    return {"script": Markup(text), "script_hash": base64.b64encode(sha256(text.encode()).digest()).decode()}


def style(name: str) -> Markup:
    """A style sheet of ours."""
    return Markup((_TEMPLATES / name).read_text("utf-8"))
