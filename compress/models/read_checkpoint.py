"""Reads the weights of a checkpoint in fp32 with one of transformers' Auto classes, in silence.

Progress bars, reports and messages of transformers would mix with ours and are suppressed, so everything it would only
warn about is checked here: weights that are missing, of another size, not finite, or pickled.
"""

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel
from transformers.utils import logging

from compress.errors import ModelError
from compress.model_sources import refuse_exported
from compress.models.embedding_model import PROJECTION
from compress.models.encoder_parts import base_of, family_of
from compress.models.fetch import FOREIGN_WEIGHTS, SAFE_WEIGHTS

POOLER = ".pooler."
"""Many checkpoints were trained without a pooler; it is then randomly initialised, like a head."""


def read_checkpoint(auto: Any, folder: Path, **options: Any) -> tuple[PreTrainedModel, Mapping[str, Any]]:
    """Return a folder's model and transformers' report of missing and mismatched weights; never executes a pickle.

    A vector of padding that is joined to the last token of a padded text becomes zero, as what follows that of a text
    alone is: else its answer would depend on the texts beside it.
    """
    weights = _weights_file(folder)
    try:
        with quiet():
            model, report = auto.from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=weights.name != FOREIGN_WEIGHTS,
                weights_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
    except pickle.UnpicklingError as error:  # its own message suggests to execute the file
        raise ModelError(f"{weights} contains more than plain tensors, so it is not loaded.") from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{weights} cannot be read: {first_line(error)}") from error
    if family_of(model).joins_neighbours and (padding := model.config.pad_token_id) is not None:
        model.get_input_embeddings().weight.data[padding].zero_()
    return model, report


def check_finite(model: PreTrainedModel, folder: Path) -> None:
    """Refuse NaN and infinite weights: training with them gives nothing else."""
    broken = [name for name, weight in model.named_parameters() if not bool(torch.isfinite(weight).all())]
    if broken:
        raise ModelError(
            f"{folder} has weights that are NaN or infinite, in {', '.join(broken[:3])}.",
            hint="its training diverged or the file is damaged; use an earlier checkpoint or another model",
        )


def missing_head_weights(model: PreTrainedModel, report: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the head's weights that the checkpoint lacks; missing encoder weights are an error."""
    missing = set(report["missing_keys"]) | {entry[0] for entry in report["mismatched_keys"]}
    in_encoder = missing & _encoder_names(model)
    encoder = sorted(name for name in in_encoder if POOLER not in f".{name}")
    if encoder:
        raise ModelError(
            f"{folder} lacks {len(encoder)} weights of the encoder, or has them in another size: {encoder[0]}.",
            hint="the config.json beside them describes another model",
        )
    return sorted(missing - in_encoder)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the error's name if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _weights_file(folder: Path) -> Path:
    """Return the path of the weights, safetensors first."""
    for name in (SAFE_WEIGHTS, f"{SAFE_WEIGHTS}.index.json", FOREIGN_WEIGHTS):
        if (folder / name).is_file():
            return folder / name
    refuse_exported(folder)
    raise ModelError(f"{folder} has no weights: expected {SAFE_WEIGHTS}.")


def _encoder_names(model: PreTrainedModel) -> set[str]:
    base = base_of(model)
    if base is model:
        return {name for name, _ in model.named_parameters() if not name.startswith(PROJECTION)}
    return {f"{model.base_model_prefix}.{name}" for name, _ in base.named_parameters()}


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' log messages below errors and its progress bars; both are restored afterwards."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
