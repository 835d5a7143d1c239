"""The operations of a pretraining per second, as a share of this machine's fastest matrix product."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from compress.measure.resources.footprint import flops_per_token
from compress.measure.roofline.matmul_bench import CPU_KERNELS, CPU_SIZES, CUDA_KERNELS, CUDA_SIZES, time_products
from compress.measure.roofline.roofline import KernelRate
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import shape_of_folder
from compress.models.fetch import fetch
from compress.pretrain.methods.replaced_tokens import GENERATOR
from compress.pretrain.pretrain_schema import PretrainRecipe
from compress.storage.stored_info import Info


class ProductRate(Info):
    """The fastest matrix product that was timed right after a training, by torch and in its precision."""

    best: KernelRate
    threads: int
    processes: int
    """Taken to be as fast each; only the main one was timed."""

    @property
    def operations(self) -> float:
        """Of all processes, per second."""
        return self.best.value * self.processes


def time_product(precision: str, processes: int) -> ProductRate:
    """Time matrix products of a BERT's layers, in a precision of trainings, for about a second."""
    kernels, sizes = (CUDA_KERNELS, CUDA_SIZES) if torch.cuda.is_available() else (CPU_KERNELS, CPU_SIZES)
    chosen = tuple(kernel for kernel in kernels if kernel.name == f"torch {precision} linear")
    threads = torch.get_num_threads()
    rates = [rate for _, rate in time_products(chosen, sizes, threads)[0]]
    return ProductRate(best=max(rates, key=lambda rate: rate.value), threads=threads, processes=processes)


class Passes(NamedTuple):
    """The passes of one model over all pieces of a training."""

    shape: ShapeInfo | None
    """None for a family that is not known."""
    number: int
    """3 with the backward pass, which takes twice the operations of the forward pass; else 1."""
    words: float
    """The share of pieces at which its word head predicts; 0 for models without one."""


def passes_of(recipe: PretrainRecipe, folder: Path, cards: Sequence[Path]) -> list[Passes]:
    """Return the passes of all models of a training, whose product is in ``folder``."""
    words, distill = recipe.masked_lm.share, recipe.distill
    if distill is not None:
        teacher = fetch(distill.teacher.source, distill.teacher.revision, cards)
        words = words if distill.method == "triple" else 0.0
        passes = [(folder, 3, words), (teacher, 1, words)]
    elif recipe.replaced_tokens is not None:
        passes = [(folder, 3, 0.0), (folder / GENERATOR, 3, words)]
    else:
        passes = [(folder, 3, words)]
    return [Passes(shape_of_folder(path), number, share) for path, number, share in passes]


def operations(models: Iterable[Passes], pieces: int, squares: int) -> float | None:
    """Return the operations of the matrix products of a training's models; None where those of a family are not known.

    The losses' own products, such as MiniLM's relations, are not counted.

    Args:
        models: all that ran.
        pieces: of all sequences.
        squares: the sum of the squared lengths of all sequences.
    """
    total = 0.0
    for shape, number, words in models:
        costs = flops_per_token(shape) if shape is not None else None
        if shape is None or costs is None:
            return None
        width = shape.embedding_size or shape.hidden
        # The head's first layer runs at all pieces, the product with the vocabulary at the masked ones alone.
        head = 2 * width * (shape.hidden + words * shape.vocabulary) if words else 0.0
        total += number * ((costs[0] + head) * pieces + costs[1] * squares)
    return total
