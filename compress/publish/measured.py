"""measured.json: what was measured of a published variant, so that it can be measured again and compared.

It lies in the variant's own folder and is among its checksums, and so covered by its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from compress.errors import ModelError, first_error
from compress.measure.result_base import Score
from compress.publish.entry import Entry, PublishedVariant
from compress.report.run_facts import TargetFacts
from compress.storage.atomic_write import write_model
from compress.storage.stored_info import Info, up_to

MEASURED_FILE = "measured.json"


class Measured(Info):
    """What was measured of one variant on one target."""

    schema_version: Annotated[int, up_to(1)] = 1
    row: str
    """Its key in the report: `student/onnx-int8`."""
    target: TargetFacts
    metric: str
    score: Score | None = None
    """On test."""
    test_rows: int | None = None
    data_digest: str
    """Of the data that test is part of."""
    batch: int | None = None
    """Rows of a batch when scored, where answers depend on it."""
    p50: Score | None = None
    """Milliseconds of one call of the model alone."""
    cpu: str
    accelerator: str | None = None
    versions: Mapping[str, str] = {}
    """Of the libraries that decide the speed."""


def write_measured(folder: Path, entry: Entry, variant: PublishedVariant) -> None:
    """Write what the report says of a variant into its folder."""
    report, result = entry.report, variant.result
    machine = report.surroundings or report.machine
    write_measured_file(
        folder,
        Measured(
            row=variant.row.key,
            target=report.target(result.target),
            metric=report.task.metric,
            score=result.test.primary if result.test else None,
            test_rows=result.test.rows if result.test else None,
            data_digest=report.data.digest,
            batch=result.test.batch if result.test else None,
            p50=result.latency.quantile("p50"),
            cpu=machine.cpu,
            accelerator=machine.accelerator,
            versions=report.versions,
        ),
    )


def write_measured_file(folder: Path, measured: Measured) -> None:
    """Write measured.json."""
    write_model(folder / MEASURED_FILE, measured)


def read_measured(folder: Path) -> Measured:
    """Read what was measured of a published variant."""
    path = folder / MEASURED_FILE
    if not path.is_file():
        raise ModelError(
            f"{folder} has no {MEASURED_FILE}, so there is nothing to compare new measurements with.",
            hint="published models have it since versions of entries exist",
        )
    try:
        return Measured.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path} cannot be read: {first_error(error)}.") from error
