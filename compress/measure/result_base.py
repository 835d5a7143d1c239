"""The base of everything that is measured and kept, and a value with its interval."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ResultModel(BaseModel):
    """Never changed in place, never NaN; keys that a later version added are passed over when read."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Score(ResultModel):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float
