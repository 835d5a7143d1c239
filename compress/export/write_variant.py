"""Writes the folder around an exported graph: config, tokenizer, compress.json, golden outputs, and how to run it."""

import math
import shutil
from pathlib import Path
from typing import Any

import compress
from compress.environment import versions
from compress.errors import DeviceUnavailable, MissingExtra, ModelError
from compress.export.build_context import BuildContext
from compress.export.comparison.golden_inputs import GoldenBatches, golden_batches, write_golden
from compress.export.comparison.parity import Parity, compare_all, compare_groups, total
from compress.export.other_tools import copy_companions, name_file, write_triton_config
from compress.export.runners import export_readme
from compress.model_folder.model_info import GOLDEN_FILE, FolderInfo, VariantInfo, write_info
from compress.model_folder.sentence_transformers_files import copy_modules, default_prompt, write_settings
from compress.runtime import open_predictor
from compress.runtime.model_formats import find_graph
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor
from compress.runtimes import least_release

STANDARD = ("", "ai.onnx")
"""Names of the domain of ONNX's own operators."""


def write_variant(
    context: BuildContext,
    base: FolderInfo,
    reference: Predictor,
    *,
    inputs: tuple[str, ...] = (),
    placement: Placement = ONE_THREAD,
    tolerance: float = math.inf,
) -> tuple[FolderInfo, Parity | None]:
    """Complete the folder of a graph that is already written, and compare its outputs with its source's.

    They are compared on golden inputs, and where the context has rows of train on those too; the differences on the
    latter are stored, or on golden inputs where there are none. A build for elsewhere whose runtime cannot run here is
    complete without: the second result is None.

    Args:
        context: of the build; its work folder holds the graph.
        base: the compress.json of its source.
        reference: the model that the outputs should agree with.
        inputs: of the graph, where they are not those of its source.
        placement: where the new folder can run.
        tolerance: differences of outputs must be smaller, relative to outputs above 1; infinite where the gate decides.

    Raises:
        ModelError: the outputs differ by more, or are not numbers.
    """
    variant = context.variant.model_copy(update=_requirements(context))
    origin = name_of_source(base)
    changes = {"step": variant.name, "made_by": f"compress {compress.__version__}", "variant": variant, "parents": ()}
    info = base.model_copy(update={**changes, "inputs": inputs or base.inputs})
    golden = _complete_folder(context, info, reference)
    predictor = _open_here(context, origin, placement)
    if predictor is None:
        return info, None
    groups = compare_groups(reference, predictor, golden, info.task)
    for name, parity in groups.items():
        _require_within(tolerance, parity, variant, origin, f"golden inputs ({name})")
    parity = total(groups.values())
    if context.parity:
        parity = compare_all(reference, predictor, context.parity, info.task)
        _require_within(tolerance, parity, variant, origin, "rows of train")
    beside = parity.alone_or_in_batch if variant.batch_sensitive else 0.0
    alone = f"; a row alone or in a batch differs by up to {beside:.2g}" if beside else ""
    context.console.note(f"{variant.name} against {origin}: {parity}{alone}")
    info = info.model_copy(update={"variant": variant.model_copy(update={"parity": parity.record()})})
    write_info(context.work, info)
    return info, parity


def _complete_folder(context: BuildContext, info: FolderInfo, reference: Predictor) -> GoldenBatches:
    """Write everything that a folder has beside its graph; returns its golden inputs."""
    assert info.variant is not None
    copy_companions(context.source, context.work, info.task)
    name_file(context.work)
    copy_modules(context.source, context.work)
    write_settings(context.work, info.task)
    if info.variant.format == "onnx" and (graph := find_graph(context.work, "onnx")):
        write_triton_config(graph, info.variant)
    write_info(context.work, info)
    golden = golden_batches(context.work, info.task)
    if (context.source / GOLDEN_FILE).is_file():  # an export, which has PyTorch's outputs
        shutil.copyfile(context.source / GOLDEN_FILE, context.work / GOLDEN_FILE)
    else:
        write_golden(context.work, golden, reference)
    (context.work / "README.md").write_text(export_readme(info, prompt=default_prompt(context.work)), encoding="utf-8")
    return golden


def _open_here(context: BuildContext, origin: str, placement: Placement) -> Predictor | None:
    """Open a complete folder; None where it is for elsewhere, and its runtime cannot run here."""
    try:
        return open_predictor(context.work, placement)
    except (DeviceUnavailable, MissingExtra) as error:
        if not context.runs_elsewhere:
            raise
        reason = error.full_message.replace(str(context.work), "it")
        context.console.note(f"{context.variant.name} is not compared with {origin}, because {reason}")
        return None


def name_of_source(base: FolderInfo) -> str:
    """Return what a variant is made from, by its name: folders of sources may be temporary."""
    return base.variant.name if base.variant else "the model in PyTorch"


def _requirements(context: BuildContext) -> dict[str, Any]:
    """Return the operators of the graph that was built, and the oldest ONNX Runtime that runs it."""
    graph, variant = find_graph(context.work, "onnx") or find_graph(context.work, "web"), context.variant
    used, ir = operators(graph) if graph else (variant.operators, 0)  # the ORT format's are known to its builder
    if not used:
        return {}
    installed = next(iter(versions(variant.libraries).values()), "")
    return {
        "operators": used,
        "libraries": dict.fromkeys(variant.libraries, least_release(used, ir, installed)),
    }


def operators(graph: Path) -> tuple[tuple[str, ...], int]:
    """Return the version of the ONNX standard and the operators that a graph uses, and the IR version of its file."""
    import onnx

    model = onnx.load(graph, load_external_data=False)
    version = next(opset.version for opset in model.opset_import if opset.domain in STANDARD)
    names = {node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}" for node in model.graph.node}
    return (f"opset {version}", *sorted(names)), model.ir_version


def _require_within(tolerance: float, parity: Parity, variant: VariantInfo, origin: str, rows: str) -> None:
    """Refuse outputs that differ by more on these rows, or are not numbers."""
    if not math.isfinite(parity.max_abs_difference):
        raise ModelError(f"{variant.name}, made from {origin}, has outputs on {rows} that are not numbers.")
    if not parity.is_within(tolerance):
        raise ModelError(
            f"the outputs of {variant.name} differ from those of its source, {origin}, by up to "
            f"{parity.max_abs_difference:.2g} on {rows}; expected less than "
            f"{tolerance * max(1.0, parity.largest_output):.2g}."
        )
