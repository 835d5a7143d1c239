"""Held-out texts without a masked piece, and losses that are not finite, are refused with what to do."""

import numpy as np
import pytest
from transformers import AutoModelForMaskedLM

from compress.errors import DataError, ModelError
from compress.pretrain.pretrain_schema import MaskedLM
from compress.pretrain.scores.held_out import score
from compress.pretrain.scores.score_method import score_held_out
from compress.pretrain.text.corpus_pieces import Corpus
from compress.pretrain.text.sentence_packing import PackedExamples, SpecialPieces


def test_losses_that_are_not_finite_are_refused(folders, corpus_folder, packed_folder):
    special = SpecialPieces(pad=0, cls=2, sep=3, mask=4, others=(0, 2, 3, 4))
    examples = PackedExamples(corpus_folder, packed_folder, "held_out", 32, special, token_types=True)
    model = AutoModelForMaskedLM.from_pretrained(folders("bert", 0))
    model.resize_token_embeddings(150)
    model.get_input_embeddings().weight.data.fill_(float("nan"))
    with pytest.raises(ModelError, match=r"not a finite number at [\d,]+ of [\d,]+ held-out piece"):
        score_held_out(model, None, examples, Corpus(corpus_folder, "train"), MaskedLM())


def test_texts_without_a_masked_piece_are_refused(folders, corpus_folder, packed_folder):
    special = SpecialPieces(pad=0, cls=2, sep=3, mask=4, others=(0, 2, 3, 4))
    examples = PackedExamples(corpus_folder, packed_folder, "held_out", 32, special, token_types=True)
    model = AutoModelForMaskedLM.from_pretrained(folders("bert", 0))
    model.resize_token_embeddings(150)
    with pytest.raises(DataError, match="none of their pieces is masked"):
        score(model, examples, np.array([0]), MaskedLM(share=1e-9), special.mask)
