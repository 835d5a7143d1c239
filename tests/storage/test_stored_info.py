from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from compress.storage.stored_info import up_to


class Facts(BaseModel):
    schema_version: Annotated[int, up_to(2)] = 2


def test_older_versions_are_read():
    assert [Facts.model_validate({"schema_version": number}).schema_version for number in (1, 2)] == [1, 2]
    assert Facts().schema_version == 2


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (3, r"written by a newer version of compress \(schema version 3, this one reads up to 2\)"),
        ("x", "valid integer"),
    ],
)
def test_newer_and_invalid_versions_are_refused(number, message):
    with pytest.raises(ValidationError, match=message):
        Facts.model_validate({"schema_version": number})
