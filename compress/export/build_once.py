"""Makes each folder once, however often it is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class BuildOnce:
    """Remembers what was built under each name, and what failed: a long export is not repeated to fail again."""

    _results: dict[str, Path | Exception] = field(default_factory=dict)

    def get(self, name: str, build: Callable[[], Path]) -> Path:
        """Return the folder that ``build`` made under this name; an error of its first call is raised again."""
        if name not in self._results:
            try:
                self._results[name] = build()
            except Exception as error:  # noqa: BLE001  # whatever a library raises, the next call raises it too
                self._results[name] = error
        result = self._results[name]
        if isinstance(result, Exception):
            raise result
        return result
