"""tokenizer.json for some of its pieces: texts of kept pieces are cut as before, and every text can still be cut."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from compress.data.tokenizer_subset import PieceTable, check_file, check_rule, keepable_pieces, rule_text, select_pieces
from compress.errors import ModelError
from compress.recipe.student_schema import VocabularyRule

CORPUS = [
    "the film was good and the plot was not",
    "a dull plot , but the very bad film was fine",
    "naïve façade über goodness and badness undoing",
    "films and plots of the greatest and the dullest kind",
] * 3
SEEN = ["the film was good", "not a bad plot"]
OTHER = ["zebra naïve undoing", "çédille 日本 ?!", "the filmography"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIAL, show_progress=False)
    return tokenizer, trainer


def bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=360, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )


def bpe_of_characters():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    options = {"special_tokens": SPECIAL, "end_of_word_suffix": "</w>", "show_progress": False}
    return tokenizer, trainers.BpeTrainer(vocab_size=140, **options)


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    options = {"special_tokens": SPECIAL, "unk_token": "<unk>", "show_progress": False}
    return tokenizer, trainers.UnigramTrainer(vocab_size=90, **options)


TOKENIZERS = {"wordpiece": wordpiece, "bpe": bpe, "bpe-characters": bpe_of_characters, "unigram": unigram}


@pytest.fixture(scope="module", params=TOKENIZERS)
def content(request):
    """Return the tokenizer.json of a tokenizer trained on a few sentences, with an added token and a template."""
    tokenizer, trainer = TOKENIZERS[request.param]()
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(["<extra>"])
    ids = [("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=ids
    )
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>")
    return json.loads(tokenizer.to_str())


def loaded(content):
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.no_padding()
    return tokenizer


def counts_of(content, texts):
    table = PieceTable(content)
    encoded = [index for text in texts for index in loaded(content).encode(text).ids]
    return table, np.bincount(encoded, minlength=max(table.every) + 1)


def test_texts_of_kept_pieces_are_cut_as_before(content):
    table, counts = counts_of(content, SEEN)
    kept = table.ordered(select_pieces(table, counts, "seen", set()))
    before, after = loaded(content), loaded(table.subset(kept))
    assert len(kept) == after.get_vocab_size() < before.get_vocab_size()
    for text in SEEN:
        old, new = before.encode(text), after.encode(text)
        assert (new.tokens, new.offsets) == (old.tokens, old.offsets)
        assert [kept[index] for index in new.ids] == old.ids
    assert after.encode("the <extra> film", "good").tokens == before.encode("the <extra> film", "good").tokens


def test_every_piece_has_the_id_of_its_row(content):
    table, counts = counts_of(content, SEEN)
    kept = table.ordered(select_pieces(table, counts, "seen", set()))
    after, names = loaded(table.subset(kept)), {index: name for name, index in loaded(content).get_vocab().items()}
    assert after.get_vocab() == {names[old]: new for new, old in enumerate(kept)}
    assert [after.token_to_id(name) for name in SPECIAL] == list(range(len(SPECIAL)))


def test_other_texts_can_still_be_cut(content):
    table, counts = counts_of(content, SEEN)
    before, after = (loaded(content), loaded(table.subset(select_pieces(table, counts, "seen", set()))))
    unknown = [tokenizer.token_to_id("<unk>") for tokenizer in (before, after)]
    for text in OTHER:
        old, new = before.encode(text), after.encode(text)
        assert new.ids.count(unknown[1]) <= old.ids.count(unknown[0])
        assert max(new.ids) < after.get_vocab_size()


def test_all_pieces_kept_is_the_same_tokenizer(content):
    table = PieceTable(content)
    subset = table.subset(table.every)
    assert loaded(subset).get_vocab() == loaded(content).get_vocab()
    assert subset["model"].get("merges") == content["model"].get("merges")


def test_frequent_pieces_are_kept(content):
    table, counts = counts_of(content, [*SEEN, "the the"])
    required = table.required()
    often = select_pieces(table, counts, VocabularyRule(min_count=2), set())
    assert required <= often <= select_pieces(table, counts, "seen", set())
    assert {int(index) for index in np.flatnonzero(counts >= 2)} <= often
    for number in (len(required), len(required) + 3, len(table.every)):
        kept = select_pieces(table, counts, VocabularyRule(keep=number), set())
        assert len(kept) <= number
        assert all(table.with_parts(index) <= kept for index in kept)
    assert kept == table.every


def test_bert_placeholders_make_room_for_words():
    vocabulary = {"[UNK]": 0, "[unused1]": 1, "[unused2]": 2, "the": 3, "film": 4}
    table = PieceTable({"model": {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]"}, "added_tokens": []})
    assert select_pieces(table, np.zeros(5, int), VocabularyRule(keep=2), set()) == {0, 3}
    assert select_pieces(table, np.zeros(5, int), VocabularyRule(keep=3), set()) == {0, 3, 4}
    with pytest.raises(
        ModelError, match=r"4 pieces cannot be kept: the tokenizer has 3 apart from placeholders"
    ) as raised:
        check_file(json.dumps(table.content), VocabularyRule(keep=4))
    assert raised.value.hint.startswith("keep: a number from 1 to 3,")


def test_pairs_of_ids_in_bert_and_roberta_templates_are_renumbered():
    vocabulary = {"[PAD]": 0, "gone": 1, "[CLS]": 2, "[SEP]": 3, "a": 4}
    processor = {
        "type": "Sequence",
        "processors": [{"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}],
    }
    model = {"type": "WordPiece", "vocab": vocabulary, "unk_token": None}
    table = PieceTable({"model": model, "added_tokens": [], "post_processor": processor})
    assert table.required() == {2, 3, 4}
    (part,) = table.subset([2, 3, 4])["post_processor"]["processors"]
    assert (part["cls"], part["sep"]) == (["[CLS]", 0], ["[SEP]", 1])


def test_bytes_of_unknown_characters_stay():
    vocabulary = [["<unk>", 0.0], ["<0x0A>", -1.0], ["word", -2.0], ["rare", -9.0], ["words", -3.0]]
    model = {"type": "Unigram", "vocab": vocabulary, "unk_id": 0, "byte_fallback": True}
    table = PieceTable({"model": model, "added_tokens": []})
    assert table.required() == {0, 1, 3}  # the lowest score decides the score of unknown characters


def test_tokenizers_that_cannot_be_pruned_are_refused(tiny_tokenizer):
    with pytest.raises(ModelError, match=r"of NAME is a Other, whose vocabulary cannot be pruned; possible are WordP"):
        PieceTable({"model": {"type": "Other", "vocab": {}}, "added_tokens": []}, "NAME")
    for keep in (3, 24):
        with pytest.raises(ModelError, match=rf"{keep} pieces cannot be kept: the tokenizer has 23, of which 5 are"):
            check_rule(tiny_tokenizer, VocabularyRule(keep=keep))
    assert len(check_rule(tiny_tokenizer, VocabularyRule(keep=20)).every) == 23
    with pytest.raises(ModelError, match=r"of NAME cannot be pruned: its tokenizer has no tokenizer.json"):
        check_rule(SimpleNamespace(is_fast=False), "seen", "NAME")
    with pytest.raises(ModelError, match=r"the vocabulary of this model cannot be pruned"):
        check_rule(SimpleNamespace(is_fast=False), "seen")


def test_rules_are_named():
    rules = ["seen", VocabularyRule(keep=8000), VocabularyRule(min_count=2)]
    assert [rule_text(rule) for rule in rules] == ["seen", "keep 8000", "min_count 2"]
    for wrong in ({}, {"keep": 1, "min_count": 1}):
        with pytest.raises(ValueError, match="give one of keep: 8000 and min_count: 2"):
            VocabularyRule(**wrong)


def test_how_many_pieces_a_folder_can_keep(tiny_folder, tmp_path):
    bounds = keepable_pieces(tiny_folder("bert"))
    assert bounds.least < bounds.most <= bounds.all
    assert keepable_pieces(tmp_path) is None
