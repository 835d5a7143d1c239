"""Words to tokens and back to words with any tokenizer; predictions, scores and descriptions."""

import numpy as np
import pytest

from compress.errors import DataError, ModelError, UsageError
from compress.recipe.task_schema import Task
from compress.tasks import KINDS, Encoding, task_info
from compress.tasks.kinds.token_classification import PREDICTION, WORD, first_tokens
from compress.tasks.parsing.bio_tags import tag_names
from tests.tasks.repeated_scores import repeated_scores

KIND = KINDS["token_classification"]
LABELS = tag_names(("city", "day"))
SENTENCES = ["fly from New York to Ulan-Ude on Sunday", "is it 3.5 % in Köln ?", "東京 (Tokyo) – naïve", "a"]


def info_of(**settings):
    columns = {"text": ("tokens",), "label": "tags"}
    return task_info(Task(kind="token_classification", data={"train": "a.jsonl"}, **columns, **settings), LABELS)


class Letters:
    """A tokenizer whose tokens are single letters, without spaces, between two special ones."""

    def windows(self, text, pair, most, overlap, limit):
        places = [index for index, letter in enumerate(text) if letter != " "]
        size, step = most - 2, most - 2 - overlap
        starts = [0, *range(step, max(1, len(places) - overlap), step)]
        return [
            self._window(text, places[start : start + size], truncated=number + 1 == limit < len(starts))
            for number, start in enumerate(starts[:limit])
        ]

    def _window(self, text, places, truncated):
        ids = [1, *(ord(text[index]) for index in places), 2]
        spans = [(-1, -1), *((index, index + 1) for index in places), (-1, -1)]
        return Encoding(ids, [0] * len(ids), truncated, spans)


def row_of(text, tags=None):
    row = {"words": text.split()}
    return row if tags is None else {**row, "label": [LABELS.index(tag) for tag in tags.split()]}


def examples_of(row, **settings):
    return KIND.examples(row, info_of(**settings), Letters())


def word_piece():
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    return (
        models.WordPiece(unk_token="[UNK]"),
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
        trainers,
    )


def byte_level(trim=True):
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    return models.BPE(), normalizers.Sequence([]), pre_tokenizers.ByteLevel(trim_offsets=trim), trainers


def sentence_piece():
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    return models.Unigram(), normalizers.NFKC(), pre_tokenizers.Metaspace(), trainers


@pytest.mark.parametrize("made", [word_piece, byte_level, lambda: byte_level(trim=False), sentence_piece])
@pytest.mark.parametrize(("most", "overlap"), [(64, 0), (9, 3), (6, 2)])
def test_every_word_has_one_first_token_with_any_tokenizer(made, most, overlap):
    tokenizers = pytest.importorskip("tokenizers")
    from compress.data.tokenizer import TextTokenizer

    model, normalizer, cutter, trainers = made()
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, cutter
    trainer = {"WordPiece": "WordPieceTrainer", "BPE": "BpeTrainer", "Unigram": "UnigramTrainer"}[type(model).__name__]
    settings = {"unk_token": "[UNK]"} if trainer == "UnigramTrainer" else {}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(
        SENTENCES, getattr(trainers, trainer)(vocab_size=120, special_tokens=special, show_progress=False, **settings)
    )
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokens = TextTokenizer(tokenizer, pad_id=0)
    for text in SENTENCES:
        row, joined = row_of(text), " ".join(text.split())
        windows = tokens.windows(joined, None, most, overlap, 99)
        examples = KIND.examples(row, info_of(max_length=most, overlap=overlap, max_windows=99), tokens)
        starts = np.cumsum([0, *(len(word) + 1 for word in row["words"][:-1])])
        result = [[index for index in example["word"] if index >= 0] for example in examples]
        assert {index for words in result for index in words} == set(range(len(row["words"])))
        for words, example, window in zip(result, examples, windows, strict=True):
            assert words == sorted(set(words))
            for index, span in zip(example["word"], window.spans, strict=True):
                assert index < 0 or span[0] <= starts[index] < span[1] or span[0] - 1 == starts[index] - 1


def test_labels_are_on_first_tokens_alone():
    [example] = examples_of(row_of("in New York", "O B-city I-city"))
    assert example["word"] == [-1, 0, -1, 1, -1, -1, 2, -1, -1, -1, -1]
    assert example["label"] == [-100, 0, -100, 1, -100, -100, 2, -100, -100, -100, -100]
    assert "label" not in examples_of(row_of("in New York"))[0]


def test_a_token_of_only_the_space_before_a_word_is_not_part_of_it():
    spans = np.array([(-1, -1), (0, 1), (1, 2), (2, 3), (3, 4), (4, 4)])
    assert list(first_tokens([spans], ["a", "bc"])) == [[-1, 0, -1, 1, -1, -1]]
    spans = np.array([(0, 1), (1, 3), (3, 4)])
    assert list(first_tokens([spans], ["a", "bc"])) == [[0, 1, -1]]


def test_a_word_cut_by_the_edge_of_a_window_is_answered_where_it_begins():
    first, second = examples_of(row_of("ab cdef", "O B-day"), max_length=6, overlap=1)
    assert first["word"] == [-1, 0, -1, 1, -1, -1]
    assert second["word"] == [-1, -1, -1, -1, -1]
    assert set(second["label"]) == {-100}


def test_batches_are_padded():
    examples = [
        example for text in ("ab c", "a") for example in examples_of(row_of(text, " ".join("O" for _ in text.split())))
    ]
    batch = KIND.collate(examples, pad_id=7)
    assert batch["input_ids"].tolist() == [[1, 97, 98, 99, 2], [1, 97, 2, 7, 7]]
    assert batch["word"].tolist() == [[-1, 0, -1, 1, -1], [-1, 0, -1, -1, -1]]
    assert batch["labels"].tolist() == [[-100, 0, -100, 0, -100], [-100, 0, -100, -100, -100]]
    assert {batch[name].dtype for name in batch} == {np.dtype(np.int64)}
    assert "labels" not in KIND.collate(examples_of(row_of("a")), pad_id=7)


def answered(rows, logits_of, **settings):
    """Predictions with ``logits_of(window number, batch)`` as the model; one batch holds all windows."""
    info = info_of(**settings)
    per_row = [KIND.examples(row, info, Letters()) for row in rows]
    batch = KIND.collate([example for examples in per_row for example in examples], pad_id=0)
    decided = KIND.decode({"logits": logits_of(batch)}, batch, info)
    return KIND.predictions(decided, [len(examples) for examples in per_row], rows, info)


def by_letter(batch):
    """Logits that say B-city at an upper case letter, else O; and nonsense wherever no word begins."""
    upper = (batch["input_ids"] >= 65) & (batch["input_ids"] <= 90)
    logits = np.where(upper[..., None], np.eye(5)[1], np.eye(5)[0]).astype(np.float32)
    return np.where((batch["word"] >= 0)[..., None], logits, np.nan)


def test_predictions_are_one_tag_per_word():
    answers = answered([row_of("in New York"), row_of("Ulm")], by_letter)
    assert answers["tag"].tolist() == [[0, 1, 1], [1, -1, -1]]
    assert answers["probability"][0, 0] == pytest.approx(np.e / (np.e + 4))
    assert answers["probability"][1].tolist() == pytest.approx([np.e / (np.e + 4), 0, 0])


def test_the_window_with_the_larger_margin_decides():
    row = row_of("a b c d e f g h")

    def by_window(batch):
        tags = np.arange(len(batch["word"])) + 1
        return np.broadcast_to(np.eye(5)[tags][:, None, :], (*batch["word"].shape, 5))

    answers = answered([row], by_window, max_length=8, overlap=4)
    # Windows a-f and c-h share c to f: c and d are farther from the edge of the first, e and f from that of the second.
    assert answers["tag"].tolist() == [[1, 1, 1, 1, 2, 2, 2, 2]]


def test_words_behind_the_last_window_are_outside_and_not_seen():
    answers = answered([row_of("A B C D E F")], by_letter, max_length=6, overlap=0, max_windows=1)
    assert answers["tag"].tolist() == [[1, 1, 1, 1, 0, 0]]
    assert (answers["probability"] > 0).tolist() == [[True] * 4 + [False] * 2]
    assert KIND.confidence(answers, np.zeros((1, 6), np.int16)).row.tolist() == [0] * 4


def test_non_finite_or_too_few_outputs_are_refused():
    rows = [row_of("a b"), row_of("c")]
    with pytest.raises(ModelError, match="NaN or infinite for 1 of 2 rows"):
        answered(rows, lambda batch: np.where(np.arange(2)[:, None, None] == 1, np.nan, np.zeros((2, 4, 5))))
    with pytest.raises(ModelError, match=r"where this task expects .any, any, 5."):
        answered(rows, lambda batch: np.zeros((2, 4, 3)))
    with pytest.raises(ModelError, match=r"logits have the shape .2, 5. where this task expects"):
        answered(rows, lambda batch: np.zeros((2, 5)))


def test_rows_cut_into_windows_of_nothing_are_answered_too():
    class Nothing:
        def windows(self, text, pair, most, overlap, limit):
            return [Encoding([1, 2], [0, 0], False, [(-1, -1), (-1, -1)])]

    row = row_of("\u200b \u200b", "O O")
    [example] = KIND.examples(row, info_of(), Nothing())
    batch = KIND.collate([example], 0)
    answers = KIND.predictions(KIND.decode({"logits": np.zeros((1, 2, 5))}, batch, info_of()), [1], [row], info_of())
    assert answers["tag"].tolist() == [[0, 0]]


def tags_as_answers(tags, probability=0.9):
    answers = np.zeros(tags.shape, PREDICTION)
    answers["tag"], answers["probability"] = tags, np.where(tags >= 0, probability, 0)
    return answers


def some(seed, rows=30):
    """Random predictions and gold of rows of different lengths."""
    random = np.random.default_rng(seed)
    gold = random.integers(0, 5, (rows, 7)).astype(np.int16)
    decided = np.where(random.random(gold.shape) < 0.3, random.integers(0, 5, gold.shape), gold)
    beyond = np.arange(7) >= random.integers(1, 8, rows)[:, None]
    gold[beyond] = decided[beyond] = -1
    return tags_as_answers(decided), gold


def test_scores_by_hand():
    # True: a city of two words, a day. Found: the city too short, the day, and a city that is none.
    gold = KIND.gold([row_of("a b c d", "B-city I-city O B-day"), row_of("e f", "O O")])
    answers = tags_as_answers(KIND.gold([row_of("a b c d", "B-city O O B-day"), row_of("e f", "O I-city")]))
    scores = KIND.score(answers, gold, info_of())
    assert scores == pytest.approx(
        {"precision": 1 / 3, "recall": 1 / 2, "f1": 0.4, "macro_f1": 0.5, "accuracy": 4 / 6, "sentence_accuracy": 0.0}
    )
    counts = KIND.class_counts(answers, gold, info_of())
    assert (counts.hits.tolist(), counts.predicted.tolist(), counts.true.tolist()) == ([0, 1], [2, 1], [1, 1])


def test_scores_that_mean_nothing_are_zero():
    nothing = np.zeros((2, 3), np.int16)
    scores = KIND.score(tags_as_answers(nothing), nothing, info_of())
    assert (scores["f1"], scores["accuracy"], scores["sentence_accuracy"]) == (0.0, 1.0, 1.0)


def test_perfect_predictions_score_best():
    _, gold = some(0)
    assert set(KIND.score(tags_as_answers(gold), gold, info_of()).values()) == {1.0}
    assert set(KIND.score(tags_as_answers(gold), gold, info_of())) == {metric.name for metric in KIND.metrics}


@pytest.mark.parametrize("rows", [1, 2, 30])
def test_scores_of_draws_are_those_of_the_repeated_rows(rows):
    answers, gold = some(rows, rows)
    random = np.random.default_rng(1)
    times = np.stack([np.bincount(random.integers(0, rows, rows), minlength=rows) for _ in range(15)]).astype(float)
    fast = KIND.weighted_scores(answers, gold, info_of(), times)
    slow = repeated_scores(KIND, answers, gold, info_of(), times)
    for metric, values in slow.items():
        np.testing.assert_allclose(fast[metric], values, atol=1e-12, err_msg=metric)


def test_rows_right_same_and_apart():
    answers, gold = some(3)
    right = KIND.correct(answers, gold)
    assert right.tolist() == [(ours["tag"] == true).all() for ours, true in zip(answers, gold, strict=True)]
    other = tags_as_answers(gold, probability=0.7)
    assert KIND.same_decision(answers, other).tolist() == right.tolist()
    assert KIND.distance(answers, answers).tolist() == [0.0] * 30
    assert KIND.distance(other, answers)[right] == pytest.approx(0.2)
    assert (KIND.distance(other, answers)[~right] > 0.2).all()


def test_a_decision_a_word_with_its_probability():
    answers, gold = some(4)
    result = KIND.confidence(answers, gold)
    assert len(result.row) == (gold >= 0).sum()
    assert result.right.mean() == pytest.approx(KIND.score(answers, gold, info_of())["accuracy"])
    assert set(result.stated) == {float(np.float32(0.9))}


def test_descriptions_give_positions_and_never_text():
    gold = KIND.gold([row_of("a b c d", "O B-city I-city B-day"), row_of("e", "O")])
    answers = tags_as_answers(gold)
    answers["probability"][0, 2] = 0.5
    first, second = KIND.to_json(answers, info_of())
    assert first["tags"] == ["O", "B-city", "I-city", "B-day"]
    assert first["entities"] == [
        {"type": "city", "start": 1, "end": 3, "probability": 0.5},
        {"type": "day", "start": 3, "end": 4, "probability": pytest.approx(0.9)},
    ]
    assert second == {"tags": ["O"], "entities": []}
    assert KIND.describe(answers, info_of()) == KIND.describe_gold(gold, info_of()) == ["city 2-3, day 4", "none"]


def test_inputs_become_rows_and_back():
    row = row_of("in New York", "O B-city I-city")
    assert KIND.to_input(row) == "in New York"
    assert (
        KIND.from_input("in New  York\n", info_of())
        == KIND.from_input(("in", "New", "York"), info_of())
        == row_of("in New York")
    )
    for wrong in ("", "  ", (), ("New York",), ("a", "")):
        with pytest.raises(UsageError, match="reads a text, or its words"):
            KIND.from_input(wrong, info_of())


def test_rows_are_counted_by_the_types_they_hold():
    assert KIND.row_classes(row_of("a b c", "I-day B-city I-city")) == [0, 1]
    assert KIND.row_classes(row_of("a", "O")) == []
    assert KIND.class_names(LABELS) == ("city", "day")


def test_predictions_hold_no_objects():
    assert not PREDICTION.hasobject
    assert not WORD.hasobject


def test_a_sentence_longer_than_all_windows_is_refused():
    settings = {"data": {"train": "a.jsonl"}, "text": ("tokens",), "label": "tags", "max_length": 8, "max_windows": 2}
    task = Task(kind="token_classification", **settings)
    row = {"tokens": ["a"] * 16, "tags": ["O"] * 16}
    assert len(KIND.read_row(row, task, LABELS, "a.jsonl, row 3")["label"]) == 16
    row = {"tokens": ["a"] * 17, "tags": ["O"] * 17}
    with pytest.raises(DataError, match=r"^a\.jsonl, row 3: the sentence has 17 words, more than .* \(2 of 8\)"):
        KIND.read_row(row, task, LABELS, "a.jsonl, row 3")


def test_words_are_confused_by_their_type():
    gold = np.array([[0, 1, 2, 3], [1, 0, -1, -1]], np.int16)
    answers = np.zeros((2, 4), PREDICTION)
    answers["tag"] = [[0, 2, 2, 1], [0, 0, -1, -1]]
    confusion = KIND.confusion(answers, gold, info_of())
    assert (confusion.names, confusion.unit) == (("O", "city", "day"), "words")
    assert confusion.counts.tolist() == [[2, 0, 0], [1, 2, 0], [0, 1, 0]]
