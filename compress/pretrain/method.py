"""What a method of pretraining gets, and what it gives to the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.models.encoder_parts import family_of
from compress.models.load_save import load_tokenizer
from compress.pretrain.encoders import special_pieces
from compress.pretrain.text.corpus_pieces import CorpusPart
from compress.pretrain.text.packed_examples import PackedExamples, SpecialPieces
from compress.recipe.pretrain_schema import PretrainRecipe
from compress.train.loop import Evaluate
from compress.train.objective import Objective


@dataclass(frozen=True)
class PretrainData:
    """What a model is pretrained on, and the tokenizer that cut it into pieces."""

    corpus: Path
    """As `corpus.write_corpus` wrote it."""
    packing: Path
    """The folder of packed sequences."""
    tokenizer: PreTrainedTokenizerBase
    special: SpecialPieces
    vocabulary: int
    """Pieces of the tokenizer."""

    @classmethod
    def load(cls, corpus: Path, packing: Path, tokenizer: Path) -> PretrainData:
        """Open the folders of the corpus, its packing, and the tokenizer."""
        loaded = load_tokenizer(tokenizer)
        return cls(corpus, packing, loaded, special_pieces(loaded, str(tokenizer)), len(loaded))

    def examples(self, model: PreTrainedModel, part: CorpusPart, length: int) -> PackedExamples:
        """Return the sequences of a part, with the inputs of a model."""
        types = family_of(model).token_types
        return PackedExamples(self.corpus, self.packing, part, length, self.special, types)


@dataclass(frozen=True)
class Setting:
    """Everything that a method of pretraining builds its model and losses from."""

    recipe: PretrainRecipe
    data: PretrainData
    start: Path | None
    """The checkpoint that training goes on from; None for a new model."""
    console: Console
    cards: Sequence[Path] = ()


@dataclass(frozen=True)
class Method:
    """A model and how it is trained."""

    model: PreTrainedModel
    objective: Callable[[int], Objective]
    """The losses of a training that begins at this step."""
    evaluate: Evaluate
    """The loss on held-out sequences that the best weights are chosen by."""
    products: Callable[[PreTrainedModel], Mapping[str, PreTrainedModel]] = lambda trained: {"": trained}
    """What is saved of the trained model, by the name of the folder; that of the result itself is empty."""
