"""Make BERT-family encoders small and fast: teacher, student, pruned, INT8, measured, published.

The public API is the table below. Each name is imported when it is first used, so that ``import compress`` costs
nothing and a folder that holds an exported model opens without torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from compress.export import export as export
    from compress.measure import measure as measure
    from compress.models import load as load
    from compress.pipeline import run as run
    from compress.prune import prune as prune
    from compress.quantize import quantize as quantize
    from compress.runtime import open as open
    from compress.train import distill as distill
    from compress.train import finetune as finetune

PUBLIC = {
    "run": "compress.pipeline:run",
    "load": "compress.models:load",
    "open": "compress.runtime:open",
    "finetune": "compress.train:finetune",
    "distill": "compress.train:distill",
    "prune": "compress.prune:prune",
    "export": "compress.export:export",
    "quantize": "compress.quantize:quantize",
    "measure": "compress.measure:measure",
}
"""Where each public name lives, as ``module:attribute``."""

__all__ = ["__version__", "distill", "export", "finetune", "load", "measure", "open", "prune", "quantize", "run"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'compress' has no attribute '{name}'")
    module, _, attribute = PUBLIC[name].partition(":")
    found = import_module(module)
    return found if module == f"compress.{name}" else getattr(found, attribute)


def __dir__() -> list[str]:
    """Show public names to completion before they are imported."""
    return sorted({*globals(), *PUBLIC})


class _Verb(ModuleType):
    """A package that can also be called: ``compress.prune(model)`` is ``compress.prune.prune(model)``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        attribute = PUBLIC[self.__name__.rpartition(".")[2]].partition(":")[2]
        return getattr(self, attribute)(*args, **kwargs)


class _Package(ModuleType):
    """Some verbs (prune, export …) are also the name of a package here, and importing it binds the name to the package.

    Which of the two ``compress.prune`` meant would depend on what was imported before; so the package answers as both.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in PUBLIC and isinstance(value, ModuleType):
            value.__class__ = _Verb
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
