"""The folder of a cascade: two models, each a complete folder of its own below `models/`, and `cascade.json`."""

from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from compress.errors import ModelError, first_error
from compress.model_folder.model_info import FolderInfo
from compress.storage.atomic_write import write_model
from compress.storage.stored_info import Info, up_to

CASCADE = "cascade"
"""The name of its variant, format and runtime."""
CASCADE_FILE = "cascade.json"
FIRST, THEN = "models/first", "models/then"
"""Deeper than one folder: beside a model's files these are the same model in further formats."""


class CascadeInfo(Info):
    """The content of cascade.json."""

    schema_version: Annotated[int, up_to(1)] = 1
    first: str
    """What it was in the run: `static/numpy-int8`."""
    then: str
    threshold: float
    """The first model answers where it is at least so sure."""
    share: float
    """Share of the rows of select that the first one answers."""


def is_cascade(info: FolderInfo) -> bool:
    """Return whether a folder holds a cascade."""
    return info.variant is not None and info.variant.format == CASCADE


def model_folders(folder: Path) -> list[Path]:
    """Return the folders of the models in ``folder``: itself, or those of a cascade's two."""
    return [folder / FIRST, folder / THEN] if (folder / CASCADE_FILE).is_file() else [folder]


def read_cascade(folder: Path) -> CascadeInfo:
    """Read cascade.json from ``folder``."""
    path = folder / CASCADE_FILE
    try:
        return CascadeInfo.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelError(f"{folder} has no {CASCADE_FILE}, although its compress.json states a cascade.") from error
    except ValidationError as error:
        raise ModelError(f"{path} cannot be read: {first_error(error)}") from error


def write_cascade(folder: Path, cascade: CascadeInfo) -> None:
    """Write cascade.json into ``folder``."""
    write_model(folder / CASCADE_FILE, cascade)
