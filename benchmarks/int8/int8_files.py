"""Makes the models by a recipe, and of each every file that can be compared."""

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.defaults.real_sets import SETS
from benchmarks.distill_throughput.environments import BASE, Environment, NotInstalled
from benchmarks.int8.int8_results import TORCH
from compress.cards import find_teacher
from compress.console import Console
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.errors import CompressError
from compress.export import BuildContext
from compress.make_variant import VariantMaker
from compress.measure.timing.worker_process import error_line
from compress.pipeline.steps.build_variant import (
    PARITY_BATCH,
    SAMPLE_ROWS,
    SCORED_ROWS,
    draw_train,
    in_batches,
    sample_train,
)
from compress.recipe.schema import Quantize
from compress.runtime.model_formats import COMPANIONS
from compress.storage.atomic_write import atomic_write
from compress.variants import VARIANTS, Variant

CARD, TEACHER = "minilm-l6", "minilm-l6-cls"
"""The shipped card, and a copy of it whose head reads [CLS]: a plain model, which the other tools can load."""
RECIPE: dict[str, Any] = {
    "teacher": TEACHER,
    "student": {"layers": 0.5},
    "prune": {"heads": 0.66, "ffn": 0.75},
}
"""A teacher, its student, and the student with a third of its heads and a quarter of its neurons: the benchmark
quantizes these three models itself."""
STEPS = {"teacher": "finetune", "student": "distill", "pruned": "recover"}
"""The step that makes each model."""
LEFT_OUT = {"openvino-int8-accuracy"}
"""Its search takes ten minutes a model where operations have to return; where none has to, it is openvino-int8."""
TOOLS = ("onnxruntime==1.31.1", "onnx==1.23.2", "onnxscript==0.7.2", "transformers==4.57.6")
ENVIRONMENTS = {
    "optimum": Environment("optimum", (*BASE, *TOOLS, "optimum-onnx==0.1.0")),
    "olive": Environment("olive", (*BASE, *TOOLS, "olive-ai==0.13.0")),
}
"""Both still need transformers before 5."""


@dataclass(frozen=True)
class Models:
    """The folders that the recipe's steps wrote."""

    folders: dict[str, Path]
    data: PreparedData


def make_models(work: Path, rows: int) -> Models:
    """Train the three models in ``work``, or take those that are there."""
    work.mkdir(parents=True, exist_ok=True)
    task = SETS["sst2"].section(work)
    task["data"] = {**task["data"], "limit": rows}
    card = find_teacher(CARD).model_copy(update={"name": TEACHER, "pooling": "cls"})
    written = yaml.safe_dump(card.model_dump(mode="json", exclude_none=True), sort_keys=False)
    atomic_write(work / "cards" / "teachers" / f"{TEACHER}.yaml", written)
    atomic_write(work / "models.yaml", yaml.safe_dump({"task": task, **RECIPE}, sort_keys=False))
    command = [sys.executable, "-m", "compress", "run", "models.yaml", "--cards", "cards", "--until", STEPS["pruned"]]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    found = {name: sorted((work / "runs" / ".steps").glob(f"{name}-*")) for name in ("data", *STEPS.values())}
    if done.returncode or not all(found.values()):
        raise CompressError(error_line(done.stderr))
    latest = {name: max(folders, key=lambda folder: folder.stat().st_mtime) for name, folders in found.items()}
    return Models({model: latest[step] for model, step in STEPS.items()}, load_prepared(latest["data"]))


def our_files(models: Models, model: str, work: Path, console: Console) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Yield the name of each file of ours and what builds it; sources come first."""
    source, build = models.folders[model], variant_builder(models, model, work, console)
    yield TORCH, lambda: source
    for variant in VARIANTS.values():
        present = all(importlib.util.find_spec(name) for name in (*variant.build_modules, *variant.run_modules))
        if variant.builder and "cpu" in variant.devices and present and variant.name not in LEFT_OUT:
            yield variant.name, lambda variant=variant: build(variant)  # type: ignore[misc]


def variant_builder(models: Models, model: str, work: Path, console: Console) -> Callable[[Variant], Path]:
    """Return what builds the folder of a variant of a model, or takes the one that is there; its source comes first."""
    source = models.folders[model]
    train = models.data.rows("train")
    sample = sample_train(models.data, source, SAMPLE_ROWS, 0)
    scored = [train[int(index)] for index in draw_train(models.data, SCORED_ROWS, 0)]

    def context(variant: Variant, made_of: Path, made: Path) -> BuildContext:
        return BuildContext(
            variant.info,
            made_of,
            made,
            settings={"max_drop": Quantize().max_drop},
            console=console,
            calibration=lambda: in_batches(sample, PARITY_BATCH),
            train_rows=lambda: scored,
        )

    return VariantMaker(source, made_from(source, work), context).make


def made_from(source: Path, work: Path) -> Path:
    """Return the folder of the files of a model, whose own name has its fingerprint."""
    return work / "files" / source.name


def their_files(models: Models, model: str, work: Path) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Yield the name of each file of other tools and what builds it, in an environment of its own."""
    for tool, settings in (
        ("optimum", "avx512_vnni"),
        ("optimum", "avx512_vnni-per-channel"),
        ("optimum", "O2-avx512_vnni-per-channel"),
        ("olive", "dynamic"),
        ("olive", "transformer-fusion-dynamic"),
    ):
        folder = made_from(models.folders[model], work) / f"{tool}-{settings}"
        job = {"model": str(models.folders[model].resolve()), "settings": settings, "output": str(folder.resolve())}
        yield f"{tool} {settings}", lambda tool=tool, job=job: run_tool(tool, job)  # type: ignore[misc]


def run_tool(tool: str, job: dict[str, str]) -> Path:
    """Run another tool on a model folder; returns the ONNX file that it made, beside the tokenizer."""
    environment, output = ENVIRONMENTS[tool], Path(job["output"])
    made = output / "model.onnx"
    output.mkdir(parents=True, exist_ok=True)
    for name in COMPANIONS:
        if (Path(job["model"]) / name).is_file():
            shutil.copyfile(Path(job["model"]) / name, output / name)
    if made.is_file():
        return made
    try:
        environment.install()
    except NotInstalled as error:
        raise CompressError(str(error)) from error
    (output / "job.json").write_text(json.dumps(job), encoding="utf-8")
    script = Path(__file__).with_name(f"{tool}_job.py")
    command = [str(environment.python), str(script), str(output / "job.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not made.is_file():
        raise CompressError(error_line(done.stderr))
    return made
