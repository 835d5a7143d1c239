"""Size and speed of some folders, side by side: what ``compress bench`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compress.console import Console
from compress.measure.facts import Facts
from compress.measure.footprint import Footprint, footprint
from compress.measure.latency import Job, Latency
from compress.measure.session import DEFAULTS, time_jobs
from compress.measure.workload import Text
from compress.recipe.schema import Measure
from compress.runtime.predictor import Place

HERE = Place()


class Measured(Facts):
    """What was found about one folder."""

    footprint: Footprint
    latency: Latency


def measure(
    *folders: Path | str,
    texts: Sequence[Text] = (),
    place: Place = HERE,
    batch: int = 1,
    length: int | None = None,
    settings: Measure = DEFAULTS,
    console: Console | None = None,
) -> dict[str, Measured]:
    """Measure model folders, exported variants or bare ONNX files, each under the name it was given by.

    With ``texts`` and no ``length`` inputs are as long as the texts are and the way from text to answer is timed too;
    otherwise every input has ``length`` pieces, 128 by default.
    """
    pieces = length if length is not None or texts else 128
    sizes = {str(folder): footprint(Path(folder)) for folder in folders}
    jobs = [Job(name, Path(name), None, place, batch, pieces) for name in sizes]
    latencies = time_jobs(jobs, texts, settings, console=console)
    return {name: Measured(footprint=size, latency=latencies[name]) for name, size in sizes.items()}
