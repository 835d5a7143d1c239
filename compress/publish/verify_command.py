"""`compress verify`: are the files those that were published, and does the model compute what it computed?"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.errors import ClaimMissed, DeviceUnavailable, MissingExtra
from compress.export.comparison.parity_check import ParityCheck, check_golden
from compress.model_folder.cascade_info import model_folders
from compress.model_folder.model_info import GOLDEN_FILE
from compress.publish.measured import measure_again
from compress.publish.pull import check_folder_signature, published_folder
from compress.publish.signatures import trusted_keys
from compress.publish.verify import DIGESTS_FILE, verify


def verify_and_show(
    model: str, console: Console, key: str | None = None, *, measure: bool = False, rows: Path | None = None
) -> None:
    """Compare files with digests.json, then run golden inputs where there are some, in each export's own runtime.

    With a ``key``, or trusted ones in the environment, the list of digests must be signed by one of them. On request it
    is also timed again, and scored on ``rows``.

    An export that was not published has golden inputs and no checksums.

    Raises:
        ModelError: a file is not as it was published.
        ClaimMissed: it is measured as worse than what was published.
        ParityMissed: outputs differ from those of PyTorch by more than the limit of the export's precision.
    """
    folder, keys = published_folder(model, console.warn), trusted_keys(key)
    result: dict[str, Any] = {"folder": str(folder)}
    lines = []
    if keys:
        result["signed"] = check_folder_signature(folder, keys)
        lines.append(f"{folder} is signed by a trusted key: {result['signed']}")
    has_golden = any((each / GOLDEN_FILE).is_file() for each in model_folders(folder))
    if (folder / DIGESTS_FILE).is_file() or not has_golden:
        result["files"] = verify(folder)
        lines.append(f"{folder}: {result['files']} files have their published digests")
    else:
        console.warn(f"{folder} has no {DIGESTS_FILE}, because it was not published: no file is compared.")
    checks = list(check_golden_folders(folder))
    result["golden"] = [each.record() for each in checks]
    again = measure_again(folder, rows, console) if measure else None
    if again is not None:
        result["measured"] = again.record()
    console.data(result, "\n".join([*lines, *map(str, checks), *([again.text] if again else [])]))
    for each in checks:
        if each.parity:
            each.parity.raise_for_misses(each.folder)
    if again is not None and again.misses:
        raise ClaimMissed(f"{folder} is worse than what was published: {', '.join(again.misses)}.")


@dataclass(frozen=True)
class GoldenCheck:
    """One export's comparison with its golden outputs, or why it was not compared."""

    folder: Path
    parity: ParityCheck | None = None
    not_run: str | None = None

    def __str__(self) -> str:
        """`model/ort (ort-fp32) repeats PyTorch: outputs within 2.1e-07, …`."""
        if self.parity is None:
            return f"{self.folder}: its golden inputs were not run, because {self.not_run}"
        return self.parity.verdict(self.folder)

    def record(self) -> dict[str, Any]:
        """Return it for json."""
        parity, misses = (self.parity.total.record(), self.parity.misses) if self.parity else (None, [])
        return {"folder": str(self.folder), "not_run": self.not_run, "parity": parity, "misses": misses}


def check_golden_folders(folder: Path) -> Iterator[GoldenCheck]:
    """Check every export in ``folder`` that has golden outputs: the folder's own, and the formats in it.

    Raises:
        ModelError: one cannot be read.
    """
    for path in sorted(folder.rglob(GOLDEN_FILE)):
        try:
            yield GoldenCheck(path.parent, check_golden(path.parent))
        except (DeviceUnavailable, MissingExtra) as error:
            yield GoldenCheck(path.parent, not_run=error.full_message)
