"""Compares an existing export with PyTorch on golden inputs, within the limits of its precision.

`compress export`, `export --check` and `compress verify` give one verdict: each compares the rows of the folder's
golden.safetensors, every row alone and in its padded batch. The second runs PyTorch on them; the others take its
outputs from the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from compress.data.tokenizer import TOKENIZER_FILE, TextTokenizer, read_tokenizer
from compress.errors import ModelError, ParityMissed, UsageError, nearest
from compress.export.comparison.golden_inputs import GoldenBatch, golden_batches, golden_outputs, read_golden
from compress.export.comparison.parity import TOLERANCE, Parity, compare_stored, total
from compress.model_folder.model_info import GOLDEN_FILE, TaskInfo, VariantInfo, read_info
from compress.runtime import default_placement, open_predictor
from compress.runtime.model_formats import FP32, describe_model_file
from compress.runtime.predictor import ONE_THREAD, Predictor


@dataclass(frozen=True)
class ParityLimit:
    """What a file of one precision may differ from PyTorch in fp32."""

    difference: float
    """Largest difference of an output, as a share of the largest output."""
    agreement: float
    """Least share of equal decisions, among clear ones."""
    least_output: float = 0.0
    """Largest outputs below it count as this: rounding depends on hidden states, which do not shrink with them."""


LIMITS: Mapping[str, ParityLimit] = {
    "fp32": ParityLimit(difference=TOLERANCE, agreement=1.0, least_output=1.0),
    "bf16": ParityLimit(difference=0.05, agreement=0.95),
    "fp16": ParityLimit(difference=0.05, agreement=0.95),
    "int8": ParityLimit(difference=0.25, agreement=0.85),
}
"""By precision, with the reasons in docs/exported-graph.md."""

WHAT_DECIDES = (
    "golden inputs are few and unlike the task's texts; a run's gate measures what rounding costs on rows of the task"
)
"""Of precisions in which a right file may miss the limit."""


@dataclass(frozen=True)
class ParityCheck:
    """The differences between an export and PyTorch, by group of golden inputs."""

    variant: VariantInfo
    limit: ParityLimit
    groups: Mapping[str, Parity]

    @cached_property
    def total(self) -> Parity:
        """The parity on all golden inputs."""
        return total(self.groups.values())

    @property
    def allowed(self) -> float:
        """The largest difference of an output that the limit allows."""
        return self.limit.difference * max(self.limit.least_output, self.total.largest_output)

    @property
    def misses(self) -> list[str]:
        """What exceeds the limit, in words; empty where the export passes."""
        found, parity = [], self.total
        if not parity.max_abs_difference < self.allowed:  # NaN is a miss too
            found.append(f"outputs differ by up to {parity.max_abs_difference:.2g}; allowed is {self.allowed:.2g}")
        if parity.agreement is not None and parity.agreement < self.limit.agreement:
            found.append(f"{parity.agreement:.1%} of the decisions are equal; expected {self.limit.agreement:.0%}")
        return found

    def verdict(self, folder: Path) -> str:
        """Return `model/ (onnx-int8) repeats PyTorch: outputs within …`, or what exceeds which limit."""
        name = f"{folder} ({self.variant.name})"
        if self.misses:
            return f"{name} does not repeat PyTorch: {'; '.join(self.misses)}."
        verdict = f"{name} repeats PyTorch: {self.total}"
        if self.total.agreement is None or self.variant.precision == "fp32":
            return verdict
        return f"{verdict}; the limit is {self.limit.agreement:.0%}, as these inputs are unlike any task's texts"

    def raise_for_misses(self, folder: Path) -> None:
        """Raise ParityMissed if the export is not within the limits of its precision."""
        if self.misses:
            is_rounded = self.variant.precision != "fp32"
            raise ParityMissed(self.verdict(folder), hint=WHAT_DECIDES if is_rounded else None)


def _exported(folder: Path) -> tuple[VariantInfo, TaskInfo | None]:
    """Return the variant and the task of an export whose precision has a limit."""
    info = read_info(folder)
    if info.variant is None:
        raise ModelError(f"{folder} is a model folder; expected one that an export or a quantization wrote.")
    if info.variant.precision not in LIMITS:
        precision = info.variant.precision
        raise ModelError(f"{folder} has the precision '{precision}', which has no limit{nearest(precision, LIMITS)}.")
    return info.variant, info.task


def _compared(
    variant: VariantInfo, golden: Mapping[str, GoldenBatch], predictor: Predictor, task: TaskInfo | None
) -> ParityCheck:
    groups = {
        group.replace("_", " "): compare_stored(batch.inputs, batch.outputs, predictor, task)
        for group, batch in golden.items()
    }
    return ParityCheck(variant, LIMITS[variant.precision], groups)


def check_golden(folder: Path) -> ParityCheck:
    """Compare the export in ``folder``, in its own runtime, with its golden outputs; PyTorch is not needed.

    Raises:
        ModelError: the export cannot be read or run, or its precision has no limit.
    """
    golden, (variant, task) = read_golden(folder), _exported(folder)
    if not golden:
        raise ModelError(f"{folder / GOLDEN_FILE} holds no inputs.", hint="export again")
    return _compared(variant, golden, open_predictor(folder, default_placement(folder)), task)


def check_parity(model: Path, folder: Path) -> ParityCheck:
    """Compare the export in ``folder`` with the PyTorch model in ``model`` that it was made from; writes nothing.

    Raises:
        ModelError: the export cannot be read or run, or is not of this model.
        UsageError: ``model`` is no PyTorch model.
    """
    form = describe_model_file(model, (FP32.format,)).format
    if form != FP32.format:
        raise UsageError(
            f"{model} is an export itself ({form}); expected the model folder that {folder} was made from.",
            hint="compress export MODEL FOLDER --check",
        )
    variant, task = _exported(folder)
    predictor = open_predictor(folder, default_placement(folder))
    _check_vocabularies(model, folder)
    reference = open_predictor(model, ONE_THREAD, FP32)
    _check_inputs(model, reference, folder, predictor)
    try:
        return _compared(variant, _golden(folder, task, reference), predictor, task)
    except ModelError as error:
        raise ModelError(f"{folder} cannot be compared with {model}: {error.message}", hint=error.hint) from error


def _golden(folder: Path, task: TaskInfo | None, reference: Predictor) -> dict[str, GoldenBatch]:
    """Return the inputs of the folder's golden.safetensors with the outputs of ``reference``.

    Exports of earlier versions have no such file; they are compared on the inputs that it would hold.
    """
    if not (folder / GOLDEN_FILE).is_file():
        return golden_outputs(golden_batches(folder, task), reference)
    stored = read_golden(folder)
    given = {group: {name: array.copy() for name, array in batch.inputs.items()} for group, batch in stored.items()}
    return {group: GoldenBatch(inputs, reference.predict(inputs)) for group, inputs in given.items()}  # writable ones


def _check_vocabularies(model: Path, folder: Path) -> None:
    """Refuse an export whose tokenizer gives other ids; older checkpoints have no tokenizer.json to compare with."""
    if not (model / TOKENIZER_FILE).is_file():
        return
    if TextTokenizer.load(model).digest() != TextTokenizer.load(folder).digest():
        sizes = [f"{read_tokenizer(each).get_vocab_size():,} pieces in {each}" for each in (model, folder)]
        raise ModelError(f"the export is not of this model, their tokenizers differ: {', '.join(sizes)}.")


def _check_inputs(model: Path, reference: Predictor, folder: Path, predictor: Predictor) -> None:
    """Refuse an export that reads other arrays."""
    if set(predictor.inputs) != set(reference.inputs):
        ours, theirs = ", ".join(sorted(reference.inputs)), ", ".join(sorted(predictor.inputs))
        raise ModelError(f"the export is not of this model: {model} reads {ours}; {folder} reads {theirs}.")
