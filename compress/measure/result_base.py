"""The base class of stored results, and a value with its interval."""

from pydantic import BaseModel, ConfigDict


class ResultModel(BaseModel):
    """Immutable and without NaN; keys that a later version added are ignored when read."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Score(ResultModel):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def relative_half_width(self) -> float:
        """Half the interval's width over the value."""
        return (self.high - self.low) / 2 / self.value
