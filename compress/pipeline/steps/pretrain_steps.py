"""What the steps of a pretraining do in their folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress import __version__
from compress.data.tokenizer import read_tokenizer
from compress.environment import describe_cpu
from compress.model_folder.model_info import read_info
from compress.pipeline.step_context import StepContext
from compress.pipeline.torchrun_launch import Launch
from compress.pretrain.pretrain_report import REPORT_JSON, REPORT_PAGE, MatrixRate, PretrainReport, TrainingPart, page
from compress.pretrain.pretrain_schema import PretrainRecipe
from compress.storage.atomic_write import write_model

if TYPE_CHECKING:
    from compress.pretrain.encoders import PretrainData, Setting

VOCABULARY, CORPUS, PACKING, PRETRAIN, REPORT = "vocabulary", "corpus", "packing", "pretrain", "report"
RESULTS_FILE = "training.json"
"""The result of each part of the training."""
PRODUCT_FILE = "product.json"
"""The fastest matrix product right after it."""


def packed_lengths(recipe: PretrainRecipe) -> list[int]:
    """Return the lengths that sequences are packed to."""
    short = recipe.train.short
    return [*([short.length] if short else []), recipe.train.length]


def vocabulary(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> None:
    """Learn a vocabulary from the documents that are trained on, or add their words to that of the checkpoint."""
    from compress.models.fetch import fetch
    from compress.pretrain.text.corpus_pieces import documents, part_of
    from compress.pretrain.vocabulary.extend_vocabulary import extend_vocabulary
    from compress.pretrain.vocabulary.train_vocabulary import train_vocabulary

    assert recipe.vocabulary is not None
    text, seed, start = recipe.text, recipe.seed, recipe.start
    trained = (each for each in documents(text) if part_of(each, text.held_out, seed) == "train")
    if start is None:
        train_vocabulary(trained, recipe.vocabulary, context.work)
    else:
        assert recipe.vocabulary.add is not None
        folder = fetch(start.source, start.revision, cards)
        extend_vocabulary(folder, trained, recipe.vocabulary.add, context.work, context.console)


def corpus(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> None:
    """Cut the documents into pieces."""
    from compress.models.load_save import load_tokenizer
    from compress.pretrain.encoders import special_pieces
    from compress.pretrain.text.corpus_pieces import PARTS, documents, write_corpus

    folder = _tokenizer_folder(context, recipe, cards)
    tokenizer = read_tokenizer(folder)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    separator = special_pieces(load_tokenizer(folder), str(folder)).sep
    found = documents(recipe.text)
    info = write_corpus(found, tokenizer, separator, recipe.text.held_out, recipe.seed, context.work)
    parts = (f"{part} {info[part]['documents']:,} documents, {info[part]['pieces']:,} pieces" for part in PARTS)
    context.console.note(f"corpus: {'; '.join(parts)}")


def packing(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> None:
    """Pack the sentences into sequences; those of other parts than `train` at the full length alone."""
    from compress.pretrain.text.corpus_pieces import SCORED_PARTS, Corpus
    from compress.pretrain.text.sentence_packing import pack

    options: dict[str, Any] = {"pairs": recipe.next_sentence, "seed": recipe.seed, "folder": context.work}
    folder = context.inputs[CORPUS]
    for length in packed_lengths(recipe):
        count = pack(Corpus(folder, "train"), "train", length, **options)
        context.console.note(f"packing: {count:,} sequences of up to {length} pieces")
    for part in SCORED_PARTS:
        pack(Corpus(folder, part), part, recipe.train.length, **options)


def pretrain(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> Mapping[str, Any] | None:
    """Train, and write the model folder."""
    from compress.pretrain.pretrain import pretrain as train
    from compress.pretrain.scores.matrix_rate import time_product
    from compress.train.core.seed_restarts import delete_work_files

    results = train(_setting(context, recipe, cards), context.work, track=context.track)
    launch = Launch.from_environment()
    if launch.is_main:
        parts = [result.model_dump(mode="json", exclude={"history", "forecasts"}) for result in results]
        (context.work / RESULTS_FILE).write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
        write_model(context.work / PRODUCT_FILE, time_product(results[-1].precision, launch.world))
        delete_work_files(context.work)
    return None


def report(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> None:
    """Score the model on held-out documents; write the report and the cards."""
    from compress.pretrain.pretrain import method_name, write_cards
    from compress.pretrain.scores.score_method import score_method
    from compress.pretrain.text.corpus_pieces import CORPUS_FILE, PARTS

    folder = context.inputs[PRETRAIN]
    held_out, scores = score_method(_setting(context, recipe, cards), folder)
    shape = read_info(folder).shape
    assert shape is not None
    corpus_info = json.loads((context.inputs[CORPUS] / CORPUS_FILE).read_bytes())
    parts = _training_parts(folder, recipe)
    written = PretrainReport(
        name=recipe.name,
        made_by=f"compress {__version__}",
        method=method_name(recipe),
        start=recipe.start and recipe.start.source,
        new_pieces=recipe.vocabulary is not None and recipe.vocabulary.add is not None,
        teacher=recipe.distill and recipe.distill.teacher.source,
        shape=shape.text,
        parameters=shape.parameters,
        vocabulary=shape.vocabulary,
        corpus={part: corpus_info[part] for part in PARTS},
        training=tuple(parts),
        matrix_rate=_matrix_rate(folder, recipe, cards),
        held_out=held_out,
        scores=scores,
        cpu=describe_cpu().model,
    )
    write_model(context.work / REPORT_JSON, written)
    (context.work / REPORT_PAGE).write_text(page(written), encoding="utf-8")
    notes = f"Held-out masked-LM loss {held_out.trained.loss.text} nats a piece." if held_out else ""
    write_cards(recipe.name, shape, recipe.train.length, notes, context.work)


def _training_parts(folder: Path, recipe: PretrainRecipe) -> list[TrainingPart]:
    stored = json.loads((folder / RESULTS_FILE).read_bytes())
    return [
        TrainingPart(
            length=length,
            steps=result["updates"],
            passes=result["epochs"],
            pieces=result["pieces"],
            seconds=result["seconds"] - result["evaluating"],
            precision=result["precision"],
            precision_reason=result.get("precision_reason"),
            ending=result["ending"],
        )
        for length, result in zip(packed_lengths(recipe), stored, strict=True)
    ]


def _matrix_rate(folder: Path, recipe: PretrainRecipe, cards: Sequence[Path]) -> MatrixRate | None:
    """Return how much of the rate of the fastest matrix product the training reached."""
    from compress.pretrain.scores.matrix_rate import ProductRate, operations, passes_of

    if not (folder / PRODUCT_FILE).is_file():  # a training of an earlier version
        return None
    stored = json.loads((folder / RESULTS_FILE).read_bytes())
    pieces, squares, seconds = (sum(part[name] for part in stored) for name in ("pieces", "squares", "seconds"))
    total = operations(passes_of(recipe, folder, cards), pieces, squares)
    seconds -= sum(part["evaluating"] for part in stored)
    if total is None or seconds <= 0:
        return None
    product = ProductRate.model_validate_json((folder / PRODUCT_FILE).read_bytes())
    return MatrixRate(
        operations=total / seconds,
        fastest=product.operations,
        kernel=product.best.kernel,
        size=product.best.size,
        threads=product.threads,
        processes=product.processes,
    )


def _setting(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> Setting:
    from compress.pretrain.encoders import Setting

    data, start = _data(context, recipe, cards), _start_folder(context, recipe, cards)
    return Setting(recipe, data, start, context.console, cards)


def _data(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> PretrainData:
    from compress.pretrain.encoders import PretrainData

    folder = _tokenizer_folder(context, recipe, cards)
    return PretrainData.load(context.inputs[CORPUS], context.inputs[PACKING], folder)


def _tokenizer_folder(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> Path:
    """Return the folder of the tokenizer: that of the step, of the checkpoint, or of the teacher."""
    from compress.models.fetch import fetch

    if VOCABULARY in context.inputs:
        return context.inputs[VOCABULARY]
    source = recipe.start or (recipe.distill.teacher if recipe.distill else None)
    assert source is not None
    return fetch(source.source, source.revision, cards)


def _start_folder(context: StepContext, recipe: PretrainRecipe, cards: Sequence[Path]) -> Path | None:
    """Return the checkpoint that training goes on from; None for a new model."""
    from compress.models.fetch import fetch

    if recipe.start is None:
        return None
    if VOCABULARY in context.inputs:  # the checkpoint with more pieces
        return context.inputs[VOCABULARY]
    return fetch(recipe.start.source, recipe.start.revision, cards)
