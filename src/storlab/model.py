"""What users' files are read with."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from storlab.base.reach import Reaching


class Model(Reaching, BaseModel):
    """Unknown keys are errors: a misspelt key that is ignored would measure something else than was meant.

    No text may hold a NUL, which no path and no argument of a program can.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*")
    @classmethod
    def _without_nul(cls, value: Any) -> Any:
        if _has_nul(value):
            raise ValueError("it holds a NUL (\\u0000), which no path and no argument can: take it out")
        return value


def _has_nul(value: Any) -> bool:
    """In a text, in a list of texts, or in a table of texts. What is nested deeper has a model of its own."""
    texts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    return any("\0" in text for text in texts if isinstance(text, str))
