"""``storlab schema``."""

from __future__ import annotations

import json

from storlab.study.json_schema import json_schema


def schema() -> None:
    """Print the JSON Schema of study files."""
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
