"""session.json: session options that were chosen by timing, and the processor they were chosen on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError

from compress.environment import describe_cpu
from compress.errors import ModelError, first_error
from compress.storage.schema_version import up_to
from compress.storage.stored_info import Info

SESSION_FILE = "session.json"


class TunedSession(Info):
    """The fastest session options of one variant on one processor."""

    schema_version: Annotated[int, up_to(1)] = 1
    processor: str
    instructions: tuple[str, ...] | None
    """Instruction sets of the processor that decide about speed."""
    runtime: str
    version: str
    """The runtime's version when they were chosen."""
    options: Mapping[str, Any] = {}
    milliseconds: tuple[float, ...] = ()
    """Median time of one call with each candidate, the default first."""
    threads: int = 1
    batch: int = 1


def tuned_options(folder: Path) -> Mapping[str, Any]:
    """Return the session options in ``folder``'s session.json if they were chosen on this kind of processor."""
    path = folder / SESSION_FILE
    if not path.is_file():
        return {}
    try:
        tuned = TunedSession.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path} cannot be read: {first_error(error)}") from error
    cpu = describe_cpu()
    return tuned.options if (tuned.processor, tuned.instructions) == (cpu.model, cpu.instructions) else {}
