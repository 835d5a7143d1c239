"""What the encoder that pretraining begins with can do, by its configuration, before any weights are read."""

from collections.abc import Mapping
from typing import Any

from compress.errors import UsageError
from compress.families import family_named, max_positions


def check_length(config: Mapping[str, Any], length: int, source: str) -> None:
    """Refuse sequences that are longer than the positions of a model."""
    positions = max_positions(config, config.get("pad_token_id"))
    if positions is not None and length > positions:
        raise UsageError(
            f"train.length is {length} pieces, but the model {source} has {positions} positions.",
            hint=f"train.length: {positions} or less",
        )


def check_pairs(config: Mapping[str, Any], source: str) -> None:
    """Refuse pairs of sentences for a model of a family that has no head for them."""
    family = family_named(config["model_type"]).name if config.get("model_type") else "bert"
    if family != "bert":
        raise UsageError(
            f"next_sentence needs a BERT; {source} is of the family {family}.", hint="next_sentence: false"
        )
