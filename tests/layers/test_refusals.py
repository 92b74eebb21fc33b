"""What a layer can't be asked for: each such table of a study is refused with its reason, before anything is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from .sites import parse

BASE = {"image-clone": {"base": {"size": "16M", "written": "5M"}}}
WRONG = json.loads((Path(__file__).parent / "cases" / "refused.json").read_text())
"""Layer, keys, and what the refusal says."""


@pytest.mark.parametrize(("layer", "keys", "reason"), WRONG, ids=str)
def test_what_can_not_be_is_refused_with_its_reason(layer: str, keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        parse([{"layer": layer, **BASE.get(layer, {}), **keys}])
