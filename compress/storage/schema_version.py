"""Versions of the JSON files that compress stores: older ones are read, newer ones are refused."""

from __future__ import annotations

from pydantic import AfterValidator


def up_to(version: int) -> AfterValidator:
    """Return a validator for a ``schema_version`` field that accepts 1 to ``version``.

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
        if number < 1:
            raise ValueError(f"expected a schema version from 1 to {version}, got {number}")
        return number

    return AfterValidator(check)
