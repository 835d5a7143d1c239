"""Two models as one: the first answers a text where it is sure enough, the second elsewhere.

Each text goes to the first; those that it is not sure of are read again, with the second's own tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.model_folder.cascade_info import CASCADE, FIRST, THEN, CascadeInfo, read_cascade
from compress.model_folder.model_info import VariantInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.model_formats import ModelFile
from compress.runtime.predictor import Placement, Predictor
from compress.runtime.text_model import TextModel
from compress.tasks.base import Arrays, Row, TaskInput


@dataclass(frozen=True, kw_only=True)
class CascadeModel(TextModel):
    """Two models that read texts: the fields of `TextModel` are the first one's."""

    then: TextModel
    """Answers the texts of which the first is not sure."""
    info: CascadeInfo
    depends_on_text = True

    @classmethod
    def of_folder(cls, folder: Path, placement: Placement) -> CascadeModel:
        """Open both models of a cascade's folder."""
        info, parts = read_cascade(folder), [folder / FIRST, folder / THEN]
        first, then = (TextModel.single(part, read_info(part), placement, None) for part in parts)
        if (first.task.kind, first.task.labels) != (then.task.kind, then.task.labels):
            raise ModelError(f"the two models of {folder} answer different tasks, or with different labels.")
        if first.kind.no_certainty:
            raise ModelError(f"{folder} is a cascade of {first.task.kind} models: {first.kind.no_certainty}.")
        return cls(**vars(first), then=then, info=info)

    def predictions(self, decoded: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row]) -> NDArray[Any]:
        """Return the first model's predictions where it is sure, and the second's elsewhere."""
        found = super().predictions(decoded, counts, rows)
        unsure = np.flatnonzero(self.kind.certainty(found) < self.info.threshold)
        if len(unsure):
            found[unsure] = self.then.predict_rows([rows[index] for index in unsure.tolist()])
        return found

    def timed_call(self, texts: Sequence[TaskInput]) -> tuple[Callable[[], object], int]:
        """Return the work of both models on these texts: the second runs where it does in use.

        Each gets as many examples as it has rows, as a model alone does.
        """
        prepared = self.prepare(texts)
        found = super().predictions(self.decode(prepared.examples), prepared.counts, prepared.rows)
        unsure = self.kind.certainty(found) < self.info.threshold
        passed_on = [text for text, is_unsure in zip(texts, unsure, strict=True) if is_unsure]
        arrays = self.arrays(prepared.examples[: len(texts)])
        examples, size = self.then.prepare(passed_on).examples[: len(passed_on)], self.then.batch
        second = [self.then.arrays(examples[start : start + size]) for start in range(0, len(examples), size)]

        def call() -> None:
            self.kind.decode(self.predictor.predict(arrays), arrays, self.task)
            self.kind.certainty(found)
            for each in second:
                self.then.predictor.predict(each)

        return call, arrays["input_ids"].shape[1]

    def certainty(self, text: TaskInput) -> float:
        """Return how sure the first model is of its answer to one text."""
        prepared = self.prepare([text])
        found = super().predictions(self.decode(prepared.examples), prepared.counts, prepared.rows)
        return float(self.kind.certainty(found)[0])

    def for_timing(self, texts: Sequence[TaskInput]) -> tuple[CascadeModel, tuple[float, ...]]:
        """Return a cascade that passes at least one of these texts on and answers one itself, and each text's weight.

        Of a few texts another share may be passed on than of all: each counts such that those which are passed on have
        the share that they have on select. Where none of them would be passed on, that of which the first model is
        least sure is.
        """
        sure = np.array([self.certainty(text) for text in texts])
        threshold = float(np.clip(self.info.threshold, np.nextafter(sure.min(), 1.0), sure.max()))
        answered = sure >= threshold
        if answered.all() or not answered.any():
            return self, ()
        share = self.info.share
        weights = np.where(answered, share / answered.sum(), (1.0 - share) / (~answered).sum())
        return replace(self, info=self.info.model_copy(update={"threshold": threshold})), tuple(weights.tolist())

    def describe(self) -> dict[str, Any]:
        """Return what both models run with."""
        return BothModels(self.predictor, self.then.predictor).describe()


@dataclass(frozen=True)
class BothModels:
    """A predictor for arrays without texts: both models read them, as they do a text of which the first is unsure."""

    first: Predictor
    then: Predictor

    @property
    def inputs(self) -> tuple[str, ...]:
        """What either takes."""
        return tuple(dict.fromkeys((*self.first.inputs, *self.then.inputs)))

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Return the second model's outputs, after the first one ran too."""
        self.first.predict(arrays)
        return self.then.predict(arrays)

    def describe(self) -> dict[str, Any]:
        """Return what both models run with."""
        first, then = self.first.describe(), self.then.describe()
        shared = {name: first[name] for name in ("device", "device_name", "threads", "instructions")}
        return {"runtime": CASCADE, **shared, "first": first, "then": then}


def open_both(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> BothModels:
    """Open the two models of a cascade's folder."""
    read_cascade(model_file.path)
    first, then = (open_predictor(model_file.path / part, placement) for part in (FIRST, THEN))
    return BothModels(first, then)
