"""What every section of a recipe is made of: frozen models, short forms, and values with limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from compress.errors import nearest

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]
Header = bool | tuple[str, ...]
Role = Literal["train", "select", "test"]
Part = Literal["train", "select", "test", "corpus", "unlabelled"]
"""What a file is read for: a role's rows, documents to search, or texts without an answer."""


@dataclass(frozen=True)
class Known:
    """The check that a name stands in ``table`` of the validation context; without a context anything goes."""

    table: str

    def __call__(self, value: str, info: ValidationInfo) -> str:
        """The name as it is, or a ValueError with the nearest one."""
        known: Collection[str] | None = (info.context or {}).get(self.table)
        if known is not None and value not in known:
            one = self.table.removesuffix("es") if self.table.endswith("sses") else self.table.removesuffix("s")
            raise ValueError(f"no {one} is called '{value}'{nearest(value, known)}")
        return value


def named(table: str) -> AfterValidator:
    """A name that must stand in ``table`` of the validation context."""
    return AfterValidator(Known(table))


def _in_a_list(value: Any) -> Any:
    return [value] if isinstance(value, (str, int, float, Mapping)) else value


listed = BeforeValidator(_in_a_list)
"""A list of one may be written without its brackets: `text: sentence`, `targets: cpu`."""


UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(value: Any) -> Any:
    """`30s`, `5m` or `1h` as seconds; numbers are seconds already."""
    if isinstance(value, str) and value[-1:] in UNITS:
        try:
            return float(value[:-1]) * UNITS[value[-1]]
        except ValueError:
            raise ValueError(f"expected a duration such as 30s or 5m, got '{value}'") from None
    return value


duration = BeforeValidator(seconds_of)
"""A number of seconds that may carry a unit: `30s`, `5m`."""


SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def bytes_of(value: Any) -> Any:
    """`500MB` or `2GiB` as bytes; numbers are bytes already."""
    unit = next((unit for unit in SIZES if isinstance(value, str) and value.endswith(unit)), None)
    if unit is None:
        return value
    try:
        return round(float(value.removesuffix(unit)) * SIZES[unit])
    except ValueError:
        raise ValueError(f"expected a size such as 500MB or 2GiB, got '{value}'") from None


size = BeforeValidator(bytes_of)
"""A number of bytes that may carry a unit: `2GiB`."""


def _with_its_defaults(value: Any) -> Any:
    return {} if value is True else value


switched = BeforeValidator(_with_its_defaults)
"""A section that `false` switches off may be switched on by `true`, with all of its defaults: `cache: true`."""


class Frozen(BaseModel):
    """Values, not objects: equal when their fields are, never changed in place."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ShortForm(Frozen):
    """A section that may also be written as one scalar, which then stands for the key named here."""

    @classmethod
    def short_key(cls) -> str:
        """The key that a bare scalar stands for."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        return (
            {cls.short_key(): value} if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value
        )
