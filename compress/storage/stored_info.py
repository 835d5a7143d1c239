"""The base class of what compress stores beside a model."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Info(BaseModel):
    """Base of stored models: unknown keys are ignored (a later version may add some), and values are immutable."""

    model_config = ConfigDict(frozen=True, extra="ignore")
