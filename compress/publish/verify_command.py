"""`compress verify`: are the files those that were published, and does the model compute what it computed?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compress.console import Console
from compress.export.comparison.golden_check import check_golden_folders
from compress.model_info import GOLDEN_FILE
from compress.publish.checksums import DIGESTS_FILE
from compress.publish.verify import verify


def verify_and_show(folder: Path, console: Console) -> None:
    """Compare files with digests.json, then run golden inputs where there are some, in each export's own runtime.

    An export that was not published has golden inputs and no checksums.

    Raises:
        ModelError: a file is not as it was published.
        ParityMissed: outputs differ from those of PyTorch by more than the limit of the export's precision.
    """
    result: dict[str, Any] = {"folder": str(folder)}
    lines = []
    if (folder / DIGESTS_FILE).is_file() or not (folder / GOLDEN_FILE).is_file():
        result["files"] = verify(folder)
        lines.append(f"{folder}: {result['files']} files have their published digests")
    else:
        console.warn(f"{folder} has no {DIGESTS_FILE}, because it was not published: no file is compared.")
    checks = list(check_golden_folders(folder))
    result["golden"] = [
        {"folder": str(each.folder), "not_run": each.not_run, "parity": each.parity and each.parity.total.record()}
        for each in checks
    ]
    console.data(result, "\n".join([*lines, *map(str, checks)]))
