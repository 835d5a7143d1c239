"""Building blocks of the schemas of recipes: frozen models, short forms, strict scalars with limits.

And the kinds of recipe files, each of which a command of its own reads.
"""

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from compress.errors import nearest
from compress.recipe.sanity_limits import MAX_LENGTH, MAX_WIDTH


class RecipeKind(NamedTuple):
    """One kind of file."""

    key: str
    """A key that every file of this kind has, and none of another."""
    title: str
    command: str


TASK = RecipeKind("teacher", "a task's recipe", "compress run")
LABELLING = RecipeKind("endpoint", "a labelling recipe", "compress label")
PRETRAINING = RecipeKind("text", "a pretraining recipe", "compress pretrain")
RECIPE_KINDS = (TASK, LABELLING, PRETRAINING)


def other_kind(keys: Collection[str], expected: RecipeKind) -> RecipeKind | None:
    """Return the kind of a file with these keys at its top where that is clearly not the ``expected`` one."""
    if expected.key in keys:
        return None
    return next((kind for kind in RECIPE_KINDS if kind.key in keys), None)


Flag = Annotated[bool, Strict()]
Number = Annotated[float, Strict()]
Share = Annotated[float, Strict(), Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Strict(), Field(gt=0.0)]
Positive = Annotated[float, Strict(), Field(gt=0.0, le=1e6)]
Weight = Annotated[float, Strict(), Field(ge=0.0, le=1e6)]
Natural = Annotated[int, Strict(), Field(ge=1)]
Count = Annotated[int, Strict(), Field(ge=1, le=10**9)]
Index = Annotated[int, Strict(), Field(ge=0, le=10**9)]
Length = Annotated[int, Strict(), Field(ge=1, le=MAX_LENGTH)]
Width = Annotated[int, Strict(), Field(ge=1, le=MAX_WIDTH)]
Header = Flag | tuple[str, ...]
Role = Literal["train", "select", "test"]
Part = Literal["train", "select", "test", "corpus", "unlabelled"]
"""What a file is read for: the rows of a role, documents to search, or texts without labels."""


def check_path(value: str) -> str:
    """Return ``value``, or raise a ValueError where no file system can hold a file of that name."""
    if "\0" in value or any(len(part.encode(errors="surrogatepass")) > 255 for part in value.split("/")):
        raise ValueError(
            f"'{value[:40]}…' is no file name: the name of a file or folder has at most 255 bytes and no NUL"
        )
    return value


PathText = Annotated[str, AfterValidator(check_path)]
"""A path, or a name that may be a path."""


def name_in(table: str) -> AfterValidator:
    """Return the validator of names in ``table`` of the validation context; without a context every name passes."""

    def check(value: str, info: ValidationInfo) -> str:
        known: Collection[str] | None = (info.context or {}).get(table)
        if known is not None and value not in known:
            kind = table.replace("criteria", "criterion").removesuffix("s")
            raise ValueError(f"no {kind} is called '{value[:60]}'{nearest(value, known)}")
        return value

    return AfterValidator(check)


as_list = BeforeValidator(lambda value: [value] if isinstance(value, (str, int, float, Mapping)) else value)
"""A list of one item may be written without brackets: `text: sentence`, `targets: cpu`."""


def _with_unit(value: Any, units: Mapping[str, float], example: str) -> Any:
    """Convert a text that may end in one of ``units`` to a number; other values stay as they are."""
    if not isinstance(value, str):
        return value
    unit = next((unit for unit in units if value.endswith(unit)), "")
    try:
        return float(value.removesuffix(unit)) * units.get(unit, 1.0)
    except ValueError:
        raise ValueError(f"expected {example}, got '{value[:60]}'") from None


UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


duration = BeforeValidator(lambda value: _with_unit(value, UNITS, "a duration such as 30s or 5m"))
"""A number of seconds that may have a unit: `30s`, `5m`."""


TIMES = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def milliseconds_of(value: Any) -> Any:
    """Convert `0.5ms` to milliseconds; a number without a unit is refused, since it may mean seconds too."""
    if not isinstance(value, str) or not value.endswith(tuple(TIMES)):
        raise ValueError(f"expected a latency with its unit such as 0.5ms or 800us, got '{str(value)[:60]}'")
    return _with_unit(value, TIMES, "a latency such as 0.5ms or 800us")


Milliseconds = Annotated[Positive, BeforeValidator(milliseconds_of), PlainSerializer(lambda value: f"{value:g}ms")]
"""A latency, written with a unit: `0.5ms`, `800us`."""


SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def bytes_of(value: Any) -> Any:
    """Convert `500MB` or `2GiB` to bytes; numbers are bytes already."""
    count = _with_unit(value, SIZES, "a size such as 500MB or 2GiB")
    return round(count) if isinstance(value, str) and isinstance(count, float) and isfinite(count) else count


size = BeforeValidator(bytes_of)
"""A number of bytes that may have a unit: `2GiB`."""
Bytes = Annotated[Natural, size]


switched = BeforeValidator(lambda value: {} if value is True else value)
"""A section that `false` switches off may be switched on by `true`, with all of its defaults: `cache: true`."""


class Frozen(BaseModel):
    """Base of every section: immutable, unknown keys refused, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RecipeFile(Frozen):
    """A file of its own: what `compress run` and other commands are given."""

    recipe_kind: ClassVar[RecipeKind]
    minimum: ClassVar[Mapping[str, str]]
    """What the shortest one holds, for the message about an empty file."""


class OneOf(Frozen):
    """A section of which exactly one key is given; the others are left out of its long form."""

    instead: ClassVar[str]
    """What to write where none or several are given."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if sum(value is not None for _, value in self) != 1:
            raise ValueError(self.instead)
        return self

    @model_serializer(mode="wrap")
    def _omit_others(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}


class ShortForm(Frozen):
    """A section that may also be written as one scalar: the value of its short key."""

    short_key: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        is_scalar = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        return {cls.short_key: value} if is_scalar else value
