"""The steps between quantizing a model and scoring it: fallback, screening, admission.

Where a quantized file lost too much on select, its most sensitive layers return to fp32; of several files, screening
keeps those worth scoring and timing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.console import Console
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.errors import CompressError, ModelError, ScreenedOut, pluralize
from compress.measure import BootstrapScorer
from compress.measure.resources.footprint import footprint
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import share_folder
from compress.pipeline.steps.build_variant import PARITY_BATCH, SAMPLE_ROWS, build_context, in_batches, sample_train
from compress.pipeline.steps.scoring_steps import Device, predict_sets
from compress.runtime import open_predictor
from compress.select.ledger import Rules
from compress.select.quantized_files import (
    SCREENING_FILE,
    Fallback,
    QuantizationLoss,
    ScreenedFile,
    quantization_loss,
    read_screening,
    screen,
)
from compress.storage.atomic_write import write_model
from compress.storage.file_names import ANSWERS_FILE, RECORD_FILE
from compress.tasks import kind_of
from compress.variants import Variant

if TYPE_CHECKING:
    from compress.export import BuildContext
    from compress.tasks.base import Arrays


SENSITIVITY_ROWS = 32
"""Rows of train on which the sensitivity of layers is measured: enough to put layers in order."""
ATTEMPT_FOLDER = ".attempt"
"""Within the step's folder while it runs: the file that is tried."""


@dataclass(frozen=True)
class FallbackSettings:
    """How a quantized file is judged, and built again where it misses."""

    rules: Rules
    device: Device
    batch: int
    """Rows scored together, as at the first target."""
    batches: tuple[int, ...]
    """Batch sizes at which outputs of a built file are compared."""
    threads: int
    bootstrap: int
    seed: int


def fallback(
    context: StepContext, quantized: str, source: str, scored: str, variant: Variant, settings: FallbackSettings
) -> dict[str, Any]:
    """Pass a quantized file on, or one with layers in fp32 where it lost too much; returns a `Fallback`.

    Args:
        context: of the step.
        quantized: the step that quantized every layer.
        source: the step that made what was quantized.
        scored: the step with its outputs on select.
        variant: the quantized variant.
        settings: of the judgement and of further builds.
    """
    judge = _judge(context, scored, variant, settings)
    shutil.rmtree(context.work / ATTEMPT_FOLDER, ignore_errors=True)  # of a killed run
    loss = judge(context.inputs[quantized])
    result = Fallback(loss=loss)
    if loss.outcome == "missed":
        context.console.note(f"{variant.name} {loss.text}")
        if variant.leaves_fp32:
            result = LayerFallback(context, quantized, source, variant, settings, judge).restore(loss)
        else:
            result = result.model_copy(update={"reason": f"{variant.method} decides itself what is quantized"})
    if not result.fp32_layers:
        share_folder(context.inputs[quantized], context.work)
        (context.work / RECORD_FILE).unlink()
    return result.model_dump(mode="json")


def _judge(
    context: StepContext, scored: str, variant: Variant, settings: FallbackSettings
) -> Callable[[Path], QuantizationLoss]:
    """Return the function that scores a folder on select and compares it with the unquantized model."""
    roles = load_prepared(context.inputs["data"])
    task = roles.info.task_info
    kind, rows = kind_of(task), roles.rows("select")
    scorer, gold = BootstrapScorer(kind, task, settings.bootstrap, settings.seed), kind.gold(rows)
    with np.load(context.inputs[scored] / ANSWERS_FILE, allow_pickle=False) as stored:
        unquantized = stored["select"]

    def judge(folder: Path) -> QuantizationLoss:
        sets = {"select": (rows, roles.documents("select"))}
        ((_, answers, *_),) = predict_sets(folder, variant, settings.device, settings.batch, sets)
        return quantization_loss(scorer, answers, unquantized, gold, settings.rules)

    return judge


@dataclass
class LayerFallback:
    """Builds a quantized file again with more and more of its layers in fp32."""

    context: StepContext
    quantized: str
    source: str
    variant: Variant
    settings: FallbackSettings
    judge: Callable[[Path], QuantizationLoss]

    def restore(self, loss: QuantizationLoss) -> Fallback:
        """Return layers to fp32, worst first, until the file passes; without success nothing is left of it."""
        from compress.quantize.layer_sensitivity import first_passing, worst_first

        try:
            ordered = worst_first(self._sensitivities())
            products, passing, tried = first_passing(ordered, self._attempt, lambda result: result is not None)
            result = Fallback(loss=loss, tried=tried)
            if passing is None:
                reason = f"it also misses with {pluralize(len(ordered), 'layer')} in fp32"
                self.context.console.warn(f"{self.variant.name}: {reason}; no layer returns to fp32.")
                return result.model_copy(update={"reason": reason})
            share_folder(self._folder, self.context.work)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        layers = tuple(self._layers[product] for product in products)
        self.context.console.note(f"{self.variant.name} with {', '.join(layers)} in fp32 {passing.text}")
        changes = {"fp32_layers": layers, "loss_with_fp32": passing, "slowdown": self._slowdown()}
        return result.model_copy(update=changes)

    def _attempt(self, products: Sequence[str]) -> QuantizationLoss | None:
        """Build and score the file with these products in fp32; None where it misses, or is broken."""
        try:
            loss = self.judge(self._build(self._build_context(SAMPLE_ROWS), products))
        except ModelError:
            return None
        return None if loss.outcome == "missed" else loss

    def _sensitivities(self) -> dict[str, float]:
        """Return the error that each product alone adds, by the name of its node."""
        from compress.quantize.layer_sensitivity import layer_sensitivities

        build = replace(self._build_context(SENSITIVITY_ROWS), console=Console("quiet"))
        rows = in_batches(self._sample(SENSITIVITY_ROWS), 1)  # alone, without padding
        build = replace(build, parity={1: rows[:1]})

        def outputs(folder: Path) -> list[Arrays]:
            predictor = open_predictor(folder)
            return [predictor.predict(row) for row in rows]

        def outputs_of(product: str) -> list[Arrays] | None:
            progress.advance(note=self._layers[product])
            try:
                return outputs(self._build(build, [name for name in self._layers if name != product]))
            except ModelError:
                return None

        with self.context.console.progress(len(self._layers), "sensitivity", "layers") as progress:
            return layer_sensitivities(self._layers, outputs(self.context.inputs[self.source]), outputs_of)

    def _build(self, build: BuildContext, fp32_products: Sequence[str]) -> Path:
        """Build the file with these products in fp32 into the folder of attempts."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        layers = tuple(self._layers[product] for product in fp32_products)
        info = build.variant.model_copy(update={"fp32_layers": layers})
        settings = {"fp32_products": tuple(fp32_products)}
        self.variant.make(replace(build, work=self._folder, variant=info, settings=settings))
        return self._folder

    def _build_context(self, rows: int) -> BuildContext:
        sizes = self.settings.batches or (PARITY_BATCH,)
        sample = self._sample(max(rows, *sizes))
        seed = self.settings.seed
        return build_context(self.context, self.source, self.variant, self._prepared, sample, sizes, seed, {})

    def _sample(self, rows: int) -> Any:
        return sample_train(self._prepared, self.context.inputs[self.source], rows, self.settings.seed)

    def _slowdown(self) -> float:
        """Return the time of the file with layers in fp32 over that of the one without."""
        from compress.export.tune_ort_session import median_row, time_folders

        row = median_row(in_batches(self._sample(SAMPLE_ROWS), PARITY_BATCH))
        folders = self.context.inputs[self.quantized], self.context.work
        every, some = time_folders(folders, row, self.settings.threads)
        return round(some / every, 3)

    @cached_property
    def _prepared(self) -> PreparedData:
        return load_prepared(self.context.inputs["data"])

    @cached_property
    def _layers(self) -> dict[str, str]:
        """By the name of a product's node, the layer that it computes."""
        import onnx

        from compress.quantize.integer_products import product_names
        from compress.runtime.onnx_runtime import existing_onnx

        return product_names(onnx.load(existing_onnx(self.context.inputs[self.source])))

    @property
    def _folder(self) -> Path:
        return self.context.work / ATTEMPT_FOLDER


ADMISSION = "admit"
"""The kind of the steps that follow a screening."""


def screen_files(context: StepContext, files: Mapping[str, str], threads: int, seed: int) -> None:
    """Compare the quantized files of a model by their losses on select, a short timing and their sizes.

    Args:
        context: of the step.
        files: by variant, the step whose folder holds its file, the first method's first; some may have failed.
        threads: of the timing.
        seed: of the rows among which the timed one is.
    """
    from compress.export.tune_ort_session import median_row, time_folders

    built = {variant: context.inputs[step] for variant, step in files.items() if step in context.inputs}
    if not built:
        raise CompressError("there is no quantized file to compare.")
    folders = list(built.values())
    rows = sample_train(load_prepared(context.inputs["data"]), folders[0], SAMPLE_ROWS, seed)
    seconds = time_folders(folders, median_row(in_batches(rows, PARITY_BATCH)), threads)
    screened = {
        variant: ScreenedFile(
            variant=variant,
            loss=Fallback.model_validate(context.records[files[variant]].measured).final,
            milliseconds=round(1e3 * time, 4),
            bytes_total=footprint(folder).bytes_total,
        )
        for (variant, folder), time in zip(built.items(), seconds, strict=True)
    }
    first = screened.pop(next(iter(files)), None)
    result = screen(first, tuple(screened.values()))
    write_model(context.work / SCREENING_FILE, result)
    kept = [variant for variant in files if variant in screened and variant not in result.reasons]
    beside = f" beside {first.variant}" if first else ""
    context.console.note(f"kept{beside}: {', '.join(kept) or 'none'}")


def admit(context: StepContext, parent: str, screening: str, variant: str) -> None:
    """Pass a file on if the screening kept it.

    Raises:
        ScreenedOut: it did not; the message says why.
    """
    if reason := screened_out(context.inputs[screening], variant):
        raise ScreenedOut(reason)
    share_folder(context.inputs[parent], context.work)
    (context.work / RECORD_FILE).unlink()


def screened_out(screening: Path, variant: str) -> str | None:
    """Return why the screening in a folder did not keep a file; None where it did."""
    reason = read_screening(screening).reasons.get(variant)
    return f"screened out: {reason}" if reason else None
