"""Make BERT-family encoders small and fast: teacher, student, pruned, INT8, measured, published.

The public API is the table below. Each name is imported when it is first used, so that ``import compress`` costs
nothing and a folder that holds an exported model opens without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from compress.bulk.bulk_predictor import BulkPredictor as BulkPredictor
    from compress.bulk.bulk_predictor import predict_table as predict_table
    from compress.bulk.bulk_predictor import spark_predictor as spark_predictor
    from compress.make_variant import export_from_model as export_from_model
    from compress.measure.bench import bench as bench
    from compress.models.load_save import load as load
    from compress.pipeline.commands.probe_command import probe_model as probe_model
    from compress.pipeline.run import run as run
    from compress.prune.cut_and_recover import prune_from_model as prune_from_model
    from compress.publish.pull import open_model as open  # noqa: F401  a public name
    from compress.quantize import quantize_folder as quantize_folder
    from compress.quantize.quantization_aware import quantization_aware_from_model as quantization_aware_from_model
    from compress.search.run_search import search_recipe as search_recipe
    from compress.train.distill import distill_from_model as distill_from_model
    from compress.train.finetune import finetune_from_model as finetune_from_model

PUBLIC = {
    "run": "compress.pipeline.run:run",
    "search_recipe": "compress.search.run_search:search_recipe",
    "load": "compress.models.load_save:load",
    "open": "compress.publish.pull:open_model",
    "predict_table": "compress.bulk.bulk_predictor:predict_table",
    "BulkPredictor": "compress.bulk.bulk_predictor:BulkPredictor",
    "spark_predictor": "compress.bulk.bulk_predictor:spark_predictor",
    "bench": "compress.measure.bench:bench",
    "probe_model": "compress.pipeline.commands.probe_command:probe_model",
    "finetune_from_model": "compress.train.finetune:finetune_from_model",
    "distill_from_model": "compress.train.distill:distill_from_model",
    "prune_from_model": "compress.prune.cut_and_recover:prune_from_model",
    "quantization_aware_from_model": "compress.quantize.quantization_aware:quantization_aware_from_model",
    "export_from_model": "compress.make_variant:export_from_model",
    "quantize_folder": "compress.quantize:quantize_folder",
}
"""Where each public name lives, as ``module:attribute``. No name is also that of a package: `compress.prune` is one."""

__all__ = ["__version__", *PUBLIC]  # noqa: PLE0604  the table's keys are names


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'compress' has no attribute '{name}'")
    module, _, attribute = PUBLIC[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """Show public names to completion before they are imported."""
    return sorted({*globals(), *PUBLIC})
