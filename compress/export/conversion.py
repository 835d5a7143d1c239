"""What converters of PyTorch models to other formats have in common: modules made for inference, silence, one error."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

from compress.environment.libraries import silent_libraries
from compress.errors import CompressError, ModelError
from compress.export.builders.onnx import export_mode
from compress.models.encoder_parts import family_of
from compress.runtime.predictor import first_line, root_cause

CONVERSION_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AssertionError, AttributeError)
"""Errors that torch.export and the converters of other formats raise about models that they do not support."""


@contextmanager
def converting(model: PreTrainedModel, library: str) -> Iterator[None]:
    """Give a model the modules made for inference, silence the library, and translate its errors."""
    try:
        with silent_libraries(), export_mode(model), torch.no_grad():
            yield
    except CompressError:
        raise
    except CONVERSION_ERRORS as error:
        reason = first_line(root_cause(error))
        raise ModelError(f"{library} cannot convert a {family_of(model).name} model like this: {reason}") from error
