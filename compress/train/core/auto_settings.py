"""The values of `epochs`, `learning_rate` and `batch_size` where a recipe leaves them to `auto`.

`RULES` is the only place with numbers. docs/training-settings.md says what they were measured on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from compress.model_folder.model_history import ChosenSetting
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import AUTO, EpochBounds, Finetune, Training, number

RULES_VERSION = 6
"""Of the rules; raised with every change, so that trainings with other values are made anew."""

AnyTraining = TypeVar("AnyTraining", bound=Training)
Steps = tuple[tuple[float, float], ...]
"""(largest argument, value) in ascending order."""
ANY = math.inf


@dataclass(frozen=True)
class Rules:
    """The values for one purpose."""

    rates: Steps
    """Peak learning rate by the model's hidden size."""
    batches: Steps
    """Rows of a batch by the rows of train."""
    least_updates: int
    """The least epochs are those with this many updates, within the most."""
    most_epochs: Steps
    """By the rows of train."""
    patience: int
    """Evaluations in a row without improvement, after which the rate falls."""


FINETUNE = Rules(
    rates=((255, 2e-4), (384, 1e-4), (512, 7e-5), (768, 5e-5), (ANY, 2e-5)),
    batches=((999, 16), (ANY, 32)),
    least_updates=200,
    most_epochs=((9_999, 10), (29_999, 6), (ANY, 4)),
    patience=1,
)
FINETUNE_CLASSES = replace(FINETUNE, batches=((9_999, 16), (ANY, 32)), least_updates=400)
DISTILL = Rules(
    rates=((255, 4e-4), (384, 2e-4), (512, 1e-4), (768, 5e-5), (ANY, 2e-5)),
    batches=((999, 16), (ANY, 32)),
    least_updates=400,
    most_epochs=((9_999, 20), (29_999, 12), (ANY, 8)),
    patience=1,
)
DISTILL_TAGS = replace(DISTILL, rates=((255, 5e-4), (384, 4e-4), (512, 2e-4), (768, 1e-4), (ANY, 4e-5)))
QUANTIZATION_AWARE = Rules(
    rates=((255, 1e-4), (384, 5e-5), (512, 3e-5), (768, 2e-5), (ANY, 1e-5)),
    batches=((999, 16), (ANY, 32)),
    least_updates=100,
    most_epochs=((9_999, 6), (29_999, 4), (ANY, 2)),
    patience=1,
)
LIGHT = Rules(
    rates=((ANY, 3e-3),),
    batches=((9_999, 32), (ANY, 64)),
    least_updates=2_000,
    most_epochs=((9_999, 40), (29_999, 12), (ANY, 8)),
    patience=2,
)
RULES: Mapping[str, Rules] = {
    "finetune": FINETUNE,
    "distill": DISTILL,
    "recover": DISTILL,
    "light": LIGHT,
    "quantization-aware": QUANTIZATION_AWARE,
    "finetune single_label_classification": FINETUNE_CLASSES,
    "finetune multi_label_classification": FINETUNE_CLASSES,
    "finetune regression": replace(FINETUNE, rates=((384, 2e-4), (512, 1e-4), (768, 5e-5), (ANY, 2e-5))),
    "finetune bilstm": replace(FINETUNE, rates=((ANY, 1e-3),), least_updates=400, most_epochs=DISTILL.most_epochs),
    "finetune token_classification": replace(FINETUNE, rates=((384, 4e-4), (512, 2e-4), (768, 1e-4), (ANY, 5e-5))),
    # Embeddings of a sentence encoder start without a new head, and the answers of a batch are each other's negatives.
    "finetune similarity": replace(FINETUNE, rates=((384, 3e-5), (ANY, 2e-5))),
    "finetune retrieval": replace(FINETUNE, rates=((ANY, 2e-5),), batches=((ANY, 64),)),
    "distill token_classification": DISTILL_TAGS,
    "recover token_classification": DISTILL_TAGS,
    "distill retrieval": replace(DISTILL, batches=((ANY, 64),)),
    "recover retrieval": replace(DISTILL, batches=((ANY, 64),)),
    "quantization-aware retrieval": replace(QUANTIZATION_AWARE, batches=((ANY, 64),)),
}
"""By purpose, or by purpose and problem (`Kind.problem`) or new head, which come first."""

MOST_EXAMPLES = 256
"""Examples of a batch: rows of many choices, candidates or windows have smaller batches."""


@dataclass(frozen=True)
class TrainingFacts:
    """What the rules depend on besides the settings."""

    rows: int
    problem: str
    """As in `Kind.problem`."""
    hidden: int = 0
    """The hidden size of the trained model; only the learning rate depends on it."""
    examples_per_row: float = 1.0
    has_select: bool = True


def resolve_auto(settings: AnyTraining, facts: TrainingFacts) -> tuple[AnyTraining, dict[str, ChosenSetting]]:
    """Return the settings without `auto`, and each chosen value but that of epochs, which the training decides.

    Epochs become bounds, and `patience` that of the rules where it is not given. They become a number where nothing is
    evaluated, and where the losses change with the share of all updates.
    """
    rules, chosen = rules_for(settings, facts.problem), dict[str, ChosenSetting]()
    if settings.learning_rate == AUTO:
        rate = _at(rules.rates, facts.hidden)
        chosen["learning_rate"] = ChosenSetting(value=rate, reason=f"hidden size {facts.hidden}")
        settings = settings.model_copy(update={"learning_rate": rate})
    if settings.batch_size == AUTO:
        size = int(_at(rules.batches, facts.rows))
        most = max(1, int(MOST_EXAMPLES / facts.examples_per_row))
        many = f" of {facts.examples_per_row:.1f} examples" if size > most else ""
        chosen["batch_size"] = ChosenSetting(value=min(size, most), reason=f"{facts.rows:,} rows{many}")
        settings = settings.model_copy(update={"batch_size": min(size, most)})
    if settings.epochs == AUTO:
        bounds = _epoch_bounds(rules, settings, facts.rows)
        settings = settings.model_copy(update={"epochs": bounds})
        if not facts.has_select or (isinstance(settings, Distill) and settings.losses_change):
            epochs = max(bounds.least, bounds.most / 2)
            why = "nothing to evaluate on" if not facts.has_select else "losses that change"
            chosen["epochs"] = ChosenSetting(value=epochs, reason=f"{facts.rows:,} rows, {why}")
            settings = settings.model_copy(update={"epochs": epochs})
    if isinstance(settings.epochs, EpochBounds) and settings.patience is None:
        settings = settings.model_copy(update={"patience": rules.patience})
    return settings, chosen


def uses_rules(settings: Training) -> bool:
    """Return whether a change of the rules changes the training."""
    values = settings.epochs, settings.batch_size, settings.learning_rate
    return AUTO in values or (isinstance(settings.epochs, EpochBounds) and settings.patience is None)


def rules_for(settings: Training, problem: str) -> Rules:
    """Return the rules of a training's section for tasks of this problem."""
    purpose = settings.purpose
    if isinstance(settings, Finetune) and settings.head == "bilstm":
        problem = settings.head
    return RULES.get(f"{purpose} {problem}", RULES[purpose])


def describe_chosen(chosen: Mapping[str, ChosenSetting]) -> str:
    """Return `learning_rate 0.0002 (hidden size 384), batch_size 32 (4,000 rows)`."""
    return ", ".join(f"{name} {setting.text}" for name, setting in chosen.items())


def _epoch_bounds(rules: Rules, settings: Training, rows: int) -> EpochBounds:
    most = _at(rules.most_epochs, rows)
    per_epoch = rows / (number(settings.batch_size) * settings.accumulate)
    return EpochBounds(least=min(most, max(1.0, round(rules.least_updates / per_epoch, 1))), most=most)


def _at(steps: Steps, argument: float) -> float:
    return next(value for largest, value in steps if argument <= largest)
