"""``storlab schema``: its options."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of study files.

    Editors complete and check studies by it: `storlab schema > study.schema.json`, and a first line
    `#:schema study.schema.json` in the study.
    """
    from storlab.cli.schema import schema as command

    command()
