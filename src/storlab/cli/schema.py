"""``storlab schema``: the JSON Schema of study files."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of study files.

    Editors complete and check studies by it: `storlab schema > study.schema.json`, and a first line
    `#:schema study.schema.json` in the study.
    """
    import json

    from storlab.study.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
