"""The base class of what compress stores beside a model, and its versions: older ones are read, newer ones refused."""

from pydantic import AfterValidator, BaseModel, ConfigDict


class Info(BaseModel):
    """Base of stored models: unknown keys are ignored (a later version may add some), and values are immutable."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def up_to(version: int) -> AfterValidator:
    """Return a validator for a ``schema_version`` field that refuses those above ``version``.

    Example:
        >>> class Facts(BaseModel):
        ...     schema_version: Annotated[int, up_to(2)] = 2
    """

    def check(number: int) -> int:
        if number > version:
            raise ValueError(
                f"written by a newer version of compress (schema version {number}, this one reads up to {version});"
                " upgrade compress-encoders"
            )
        return number

    return AfterValidator(check)
