"""What users' files are read with."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Unknown keys are errors: a misspelt key that is ignored would measure something else than was meant."""

    model_config = ConfigDict(extra="forbid", frozen=True)
