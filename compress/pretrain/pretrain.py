"""Pretraining: trains an encoder on packed sequences, and writes its model folder.

Cards beside it are how task recipes name the encoder as their teacher or student.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from compress import __version__
from compress.errors import DataError
from compress.model_folder.model_info import FolderInfo, ShapeInfo
from compress.models.load_save import save_model
from compress.pretrain.encoder_limits import check_length
from compress.pretrain.encoders import Method, Setting, load_encoder, new_bert
from compress.pretrain.methods.bert_pretraining import MaskedLMObjective
from compress.pretrain.methods.general_distillation import general_distillation
from compress.pretrain.methods.replaced_tokens import replaced_tokens
from compress.pretrain.pretrain_schema import PretrainRecipe, PretrainSteps
from compress.pretrain.scores.held_out import make_evaluator
from compress.recipe.training_schema import Training, Updates
from compress.recipe.yaml_lines import dump_yaml
from compress.train.core.checkpoints import TrainResult
from compress.train.core.seed_restarts import FOLDER
from compress.train.loop import train

MOST_PASSES = MOST_EVALUATIONS = 10_000
"""Passes over the texts that a training may make, and evaluations in them."""


def masked_lm(setting: Setting) -> Method:
    """Train a word head, and one for pairs where the recipe asks for it."""
    recipe, data = setting.recipe, setting.data
    model = start_model(setting)
    select = data.examples(model, "select", recipe.train.length)
    mask = data.special.mask
    return Method(
        model,
        lambda first: MaskedLMObjective(recipe.masked_lm, mask, recipe.seed, first),
        make_evaluator(select, recipe.masked_lm, mask),
    )


METHODS: Mapping[str, Callable[[Setting], Method]] = {
    "masked_lm": masked_lm,
    "replaced_tokens": replaced_tokens,
    "distill": general_distillation,
}
"""By the recipe's section."""


def method_name(recipe: PretrainRecipe) -> str:
    """Return the section of a recipe that says how it trains."""
    return next((name for name in ("replaced_tokens", "distill") if getattr(recipe, name) is not None), "masked_lm")


def start_model(setting: Setting) -> PreTrainedModel:
    """Return the model that a recipe starts from: its checkpoint, or a new one."""
    recipe, data = setting.recipe, setting.data
    if setting.start is None:
        assert recipe.shape is not None
        return new_bert(
            recipe.shape,
            data.vocabulary,
            recipe.train.length,
            data.special,
            pairs=recipe.next_sentence,
            seed=recipe.seed,
        )
    model = load_encoder(setting.start, pairs=recipe.next_sentence, seed=recipe.seed, console=setting.console)
    check_length(model.config.to_dict(), recipe.train.length, str(setting.start))
    return model


def pretrain(setting: Setting, work: Path, *, track: str | None = None) -> list[TrainResult]:
    """Train by the recipe's method and write the model folder to ``work``; returns the result of each part.

    A killed training goes on from its last checkpoint. Of several processes only the main one writes.
    """
    recipe = setting.recipe
    method = METHODS[method_name(recipe)](setting)
    results, done = list[TrainResult](), 0
    for number, (length, steps, share) in enumerate(parts_of(recipe.train)):
        examples = setting.data.examples(method.model, "train", length)
        settings = training_settings(recipe.train, len(examples), steps, share)
        result = train(
            method.model,
            method.objective(done),
            examples,
            settings,
            seed=recipe.seed + number,
            work=work / FOLDER / f"{number}",
            evaluate=method.evaluate,
            larger_is_better=False,
            console=setting.console,
            track=track,
            label=f"pretrain on {length} pieces",
        )
        setting.console.note(f"pretrain on {length} pieces: {result.summary}")
        results.append(result)
        done += steps
    if int(os.environ.get("RANK", "0")) == 0:
        if recipe.shape is not None:
            setting.data.tokenizer.model_max_length = recipe.shape.positions or recipe.train.length
        for name, model in method.products(method.model).items():
            info = FolderInfo(step="pretrain", made_by=f"compress {__version__}", training=results[-1])
            save_model(model, setting.data.tokenizer, work / name, info)
    return results


def parts_of(settings: PretrainSteps) -> list[tuple[int, int, float]]:
    """Return the length, the number of steps and the share of the time of each part of a training."""
    if settings.short is None:
        return [(settings.length, settings.steps, 1.0)]
    short = max(1, round(settings.short.share * settings.steps))
    share = settings.short.share
    return [(settings.short.length, short, share), (settings.length, max(1, settings.steps - short), 1 - share)]


def training_settings(settings: PretrainSteps, examples: int, steps: int, share: float) -> Training:
    """Return the settings of the training loop for so many steps; evaluations are spread over all of them."""
    per_pass = -(-examples // (settings.batch_size * settings.accumulate))
    passes = steps / per_pass
    if passes > MOST_PASSES:
        raise DataError(
            f"{steps:,} steps would be {passes:,.0f} passes over the texts, which fill {per_pass} batches.",
            hint="fewer train.steps, smaller batches, or more text",
        )
    evaluations = max(1, round(settings.evaluations * share / passes))
    updates: dict[str, Any] = {name: getattr(settings, name) for name in Updates.model_fields}
    if settings.minutes is not None:
        updates["minutes"] = settings.minutes * share
    return Training(
        **updates,
        epochs=passes,
        max_steps=steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        evaluations=min(evaluations, per_pass, MOST_EVALUATIONS),
    )


MODEL_FOLDER = "model"
CHECKPOINT = {"folder": f"../{MODEL_FOLDER}"}
"""Relative to the folders of cards."""
LANGUAGE = "und"
"""The language code of texts of an undetermined language (ISO 639-2)."""


def write_cards(name: str, shape: ShapeInfo, max_length: int, notes: str, folder: Path) -> None:
    """Write a teacher's and a student's card into ``folder``, which `--cards` then names."""
    common: dict[str, Any] = {"schema_version": 1, "name": name, "title": f"{name}: {shape.text}"}
    sizes = {"layers": shape.layers, "hidden": shape.hidden, "heads": shape.heads[0], "ffn": shape.ffn[0]}
    cards: dict[str, dict[str, Any]] = {
        "teachers": {
            "checkpoint": CHECKPOINT,
            "family": shape.family,
            "licence": None,
            "languages": [LANGUAGE],
            "max_length": max_length,
        },
        "students": {"shape": sizes, "start": CHECKPOINT, "distill": {"losses": {"soft_label": 1.0}}},
    }
    for kind, card in cards.items():
        path = folder / kind / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dump_yaml({**common, **card, "notes": notes}), encoding="utf-8")
