"""session.json: session options that were chosen by timing, and the processor they were chosen on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError

from compress.environment import Cpu, describe_cpu
from compress.errors import ModelError, first_error
from compress.model_info import Info
from compress.storage.schema_version import up_to

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

    def fits(self, cpu: Cpu) -> bool:
        """Whether ``cpu`` is the kind of processor they were chosen on."""
        return (self.processor, self.instructions) == (cpu.model, cpu.instructions)


def read_session(folder: Path) -> TunedSession | None:
    """Read ``folder``'s session.json; None where there is none."""
    path = folder / SESSION_FILE
    if not path.is_file():
        return None
    try:
        return TunedSession.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path} cannot be read: {first_error(error)}") from error


def tuned_options(folder: Path) -> Mapping[str, Any]:
    """Return the tuned session options in ``folder`` if they were chosen on this kind of processor, else none."""
    tuned = read_session(folder) if folder.is_dir() else None
    return tuned.options if tuned is not None and tuned.fits(describe_cpu()) else {}
