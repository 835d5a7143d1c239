"""Question answering: what is read, what the model sees, which passage is answered, and what that is worth."""

import json

import numpy as np
import pytest

from compress.data.loading.raw_rows import file_rows
from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError, ModelError, UsageError
from compress.measure.baselines import baseline_predictions
from compress.measure.quality.bootstrap_scorer import BootstrapScorer
from compress.recipe.task_schema import Data, Task
from compress.tasks import KINDS, task_info
from compress.tasks.kinds.question_answering import prediction_fields
from compress.tasks.validate_task import task_problems
from tests.tasks.repeated_scores import repeated_scores

KIND = KINDS["question_answering"]
CONTEXT = "a bad film is a good film or a great film"


def task_of(**more):
    settings = {"kind": "question_answering", "text": ("question", "context"), "label": "answers", "max_length": 32}
    return Task(**{**settings, "data": Data(train="a.json", test="b.json"), **more})


def read(answers, context=CONTEXT, task=None, **more):
    raw = {"question": "which film?", "context": context, "answers": answers, **more}
    return KIND.read_row(raw, task or task_of(), (), "a.json, row 1")


def info(**more):
    return task_info(task_of(**more), ())


@pytest.fixture(scope="module")
def tokens(tiny_tokenizer, tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    tiny_tokenizer.save_pretrained(folder)
    tiny_model("bert").config.save_pretrained(folder)
    return TextTokenizer.load(folder)


@pytest.mark.parametrize(
    "answers",
    [
        [{"text": "good film", "answer_start": 16}, {"text": "good", "answer_start": 16}],
        {"text": ["good film", "good"], "answer_start": [16, 16]},
        ["good film", "good"],
        [{"text": " good film ", "answer_start": 15}, {"text": "good"}],
    ],
)
def test_answers_are_read_in_every_shape(answers):
    row = read(answers)
    assert row["answers"] == ["good film", "good"]
    assert row["start"] == 16
    assert tuple(row) == KIND.fields


def test_one_answer_per_line_with_its_offset():
    flat = {"question": "q", "context": CONTEXT, "answer": "film", "answer_start": "21", "place": 37}
    task = task_of(aliases={"answers": ("answer",)})
    assert KIND.read_row(flat, task, (), "x")["start"] == 21
    assert KIND.read_row(flat, task_of(label=("answer", "place")), (), "x")["start"] == 37
    assert not task_problems(task_of(label=("answer", "place")))


@pytest.mark.parametrize(
    ("given", "taken"), [(21, 21), (22, 21), (20, 21), (35, 37), (9, 6), (0, 6), (500, 37), (-1, 6)]
)
def test_a_wrong_offset_moves_to_the_nearest_occurrence(given, taken):
    assert read([{"text": "film", "answer_start": given}])["start"] == taken


@pytest.mark.parametrize("answers", [[], {"text": [], "answer_start": []}, "", None])
def test_questions_without_an_answer(answers):
    assert read(answers)["answers"] == []
    assert read(answers)["start"] == -1


@pytest.mark.parametrize("impossible", [True, "true", 1, "True"])
def test_impossible_ones_have_none_whatever_else_they_hold(impossible):
    assert read([{"text": "good", "answer_start": 16}], is_impossible=impossible)["answers"] == []
    assert read([{"text": "good", "answer_start": 16}], is_impossible=False)["answers"] == ["good"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([{"text": "dull plot", "answer_start": 0}], "'dull plot' does not occur in its context"),
        (["good", "Good"], "'Good' does not occur"),
        ([{"text": "", "answer_start": 0}], "an answer is empty where text is expected"),
        ([{"text": 3, "answer_start": 0}], "is 3 where text is expected"),
        ([{"answer_start": 0}], "an answer is empty where text"),
        ([{"text": "good", "answer_start": "here"}], "offset is 'here' where a number"),
        ([{"text": "good", "answer_start": 1.5}], "offset is 1.5"),
        ([{"text": "good", "answer_start": True}], "offset is True"),
        ({"text": ["good"], "answer_start": []}, "does not fit them"),
        ({"text": "good"}, "without a list of 'text'"),
        ({"answer": "good"}, "without a list of 'text'"),
        (5, "is 5 where text is expected"),
    ],
)
def test_invalid_answers_are_refused_with_their_location(answers, expected):
    with pytest.raises(DataError, match=r"^a\.json, row 1: ") as caught:
        read(answers)
    assert expected in caught.value.message


def test_missing_columns_and_texts():
    with pytest.raises(DataError, match="no column 'context'"):
        KIND.read_row({"question": "q", "answers": []}, task_of(), (), "x")
    with pytest.raises(DataError, match="no column 'answers'"):
        KIND.read_row({"question": "q", "context": "c"}, task_of(), (), "x")
    with pytest.raises(DataError, match="column 'context' is empty where text"):
        read([], context=None)


@pytest.mark.parametrize("empty", ["question", "context"])
@pytest.mark.parametrize("value", ["", " \n"])
def test_empty_texts_are_refused(empty, value):
    with pytest.raises(DataError, match=rf"^a\.json, row 1: column '{empty}' is empty"):
        read([], **{"context": CONTEXT, empty: value})


def test_contradictory_settings_are_refused():
    assert "does not fit into max_length" in str(task_problems(task_of(max_answer=32))[0])
    assert any("columns of text" in str(problem) for problem in task_problems(task_of(text=("question",))))
    assert any("has no effect" in str(problem) for problem in task_problems(task_of(labels=("a", "b"))))


def test_label_spans_are_within_the_window_or_zero(tokens):
    task = info(max_length=12, overlap=2)
    row = read([{"text": "great film", "answer_start": 31}], question="which film?")
    examples = KIND.examples(row, task, tokens)
    assert len(examples) > 1
    held = [example for example in examples if example["start"]]
    assert held
    for example in examples:
        pieces = range(len(example["input_ids"]))
        inside = [index for index in pieces if example["context"][index]]
        covered = example["first"][inside[0]] <= 31 and example["last"][inside[-1]] >= 41
        assert bool(example["start"]) == covered
        assert all((example["first"][index] >= 0) == bool(example["context"][index]) for index in pieces)
    for example in held:
        text = CONTEXT[example["first"][example["start"]] : example["last"][example["end"]]]
        assert text == "great film"


def test_inputs_to_predict_have_no_label_spans(tokens):
    row = KIND.from_input(("which film?", CONTEXT), info())
    assert all("start" not in example for example in KIND.examples(row, info(), tokens))
    assert KIND.to_input(row) == ("which film?", CONTEXT)
    with pytest.raises(UsageError, match="question, context"):
        KIND.from_input("which film?", info())


def test_long_questions_are_cut(tokens):
    row = {**read([]), "question": "film " * 200}
    example = KIND.examples(row, info(), tokens)[0]
    assert len(example["input_ids"]) <= 32
    assert any(example["context"])
    assert KIND.examples({**read([]), "context": ""}, info(), tokens)[0]["context"].count(1) == 0


def answered(rows, task, tokens, towards=None, nothing=-50.0):
    """Predictions of a model that knows the spans in ``towards`` (characters), or that there is none."""
    examples = [KIND.examples(row, task, tokens) for row in rows]
    batch = KIND.collate([example for some in examples for example in some], 0)
    start, end = np.zeros((2, *batch["input_ids"].shape), np.float32)
    owner = [number for number, some in enumerate(examples) for _ in some]
    for line, number in enumerate(owner):
        start[line, 0] = end[line, 0] = nothing / 2
        first, last = (towards or [(row["start"], row["start"] + len(row["answers"][0])) for row in rows])[number]
        start[line][batch["first"][line] == first] += 5
        end[line][batch["last"][line] == last] += 5
    decided = KIND.decode({"start_logits": start, "end_logits": end}, batch, task)
    return KIND.predictions(decided, [len(some) for some in examples], rows, task)


def test_the_best_passage_over_windows(tokens):
    task = info(max_length=12, overlap=4)
    rows = [read([{"text": "great film", "answer_start": 31}]), read([{"text": "a bad", "answer_start": 0}])]
    result = answered(rows, task, tokens)
    assert result["text"].tolist() == ["great film", "a bad"]
    assert KIND.score(result, KIND.gold(rows), task) == {"f1": 1.0, "exact_match": 1.0, "answerable": 1.0}
    assert KIND.describe(result, task)[0].startswith("characters 31-41 (")
    assert KIND.describe_gold(KIND.gold(rows), task) == ["characters 31-41", "characters 0-5"]
    assert KIND.to_json(result, task)[0]["answer"] == "great film"
    assert (result["probability"] > 0.5).all()
    assert (result["probability"] <= 1.0).all()


def test_long_answers_are_cut(tokens):
    rows = [read([{"text": CONTEXT, "answer_start": 0}])]
    result = answered(rows, info(max_answer=3), tokens)
    assert len(result["text"][0].split()) <= 3


def test_one_long_answer_does_not_widen_all_rows(tokens):
    endless = "x" * 100_000  # one token, unknown to the tokenizer
    rows = [read(["good film"] * 3), read([endless], context=f"a {endless}")]
    result, gold = answered(rows, info(), tokens), KIND.gold(rows)
    assert result["text"].tolist() == ["good film", "x" * 500]
    assert (result["start"][1], result["end"][1]) == (2, 100_002)
    assert result.nbytes + gold.nbytes < 10_000
    assert json.loads(gold["answers"][0]) == ["good film"]
    assert KIND.score(result, gold, info())["exact_match"] == 1.0


def test_too_many_answers_are_refused():
    assert len(read(["film"] * 200)["answers"]) == 200
    words = [f"word{number}" for number in range(101)]
    with pytest.raises(DataError, match=r"a\.json, row 1: there are more than 100 different answers"):
        read(words, context=" ".join(words))


def test_a_text_without_tokens_has_no_answer(tokens):
    rows = [{**read([]), "context": ""}]
    for threshold in (None, 0.0):
        task = info().model_copy(update={"threshold": threshold})
        result = answered(rows, task, tokens, towards=[(0, 0)])
        assert KIND.to_json(result, task) == [{"answer": None, "start": None, "end": None, "probability": 1.0}]


def passages(*entries):
    """(text, margin of no answer) as predictions without a threshold."""
    lines = [(text, 0, len(text), 0.0, surplus, 0.0, True, 1.0) for text, surplus in entries]
    return np.array(lines, dtype=prediction_fields(20))


def test_the_threshold_decides_and_is_tuned():
    rows = [read(["good"]), read(["bad"]), read([]), read([])]
    gold, task = KIND.gold(rows), info()
    result = passages(("good", -4.0), ("bad", 1.0), ("film", 2.0), ("film", 6.0))
    assert KIND.score(KIND.apply_threshold(result, task), gold, task)["f1"] == 0.5
    tuned = KIND.tune_threshold(result, gold, task)
    assert tuned.threshold == 1.5
    decided = KIND.apply_threshold(result, tuned)
    assert decided["answered"].tolist() == [True, True, False, False]
    assert KIND.score(decided, gold, task) == {"f1": 1.0, "exact_match": 1.0, "answerable": 1.0}
    assert (decided["probability"] >= 0.5).all()  # what is decided is the more probable
    assert KIND.describe(decided, task)[3] == "no answer (99 %)"
    assert KIND.apply_threshold(decided, task)["answered"].all()


@pytest.mark.parametrize("metric", ["f1", "exact_match", "answerable"])
def test_tuning_follows_the_metric(metric):
    random = np.random.default_rng(1)
    rows = [read(["good"] if number % 2 else []) for number in range(30)]
    gold, task = KIND.gold(rows), info(metric=metric)
    result = passages(*((("good", "film", "good film")[number % 3], random.normal()) for number in range(30)))
    tuned = KIND.tune_threshold(result, gold, task)
    best = KIND.score(KIND.apply_threshold(result, tuned), gold, task)[metric]
    for threshold in np.linspace(-4, 4, 200):
        other = task.model_copy(update={"threshold": float(threshold)})
        assert KIND.score(KIND.apply_threshold(result, other), gold, task)[metric] <= best + 1e-12


def test_no_threshold_where_every_question_has_an_answer():
    rows = [read(["good"])]
    assert KIND.tune_threshold(passages(("good", 3.0)), KIND.gold(rows), info()).threshold is None
    assert not KIND.has_threshold(rows)
    assert KIND.has_threshold([*rows, read([])])


def mixed():
    rows = [read(["good film", "good"]), read([]), read(["bad"]), read([])]
    task = info().model_copy(update={"threshold": 0.0})
    result = KIND.apply_threshold(passages(("good film", -1.0), ("film", -1.0), ("bad film", -2.0), ("a", 3.0)), task)
    return result, KIND.gold(rows), task


def test_scores_by_hand():
    result, gold, task = mixed()
    scores = KIND.score(result, gold, task)
    assert scores == pytest.approx({"f1": (1 + 0 + 2 / 3 + 1) / 4, "exact_match": 0.5, "answerable": 0.75})
    assert KIND.correct(result, gold).tolist() == [True, False, False, True]
    assert KIND.confidence(result, gold).right.tolist() == [True, False, False, True]


def test_draws_are_the_scores_of_repeated_rows():
    result, gold, task = mixed()
    times = np.random.default_rng(0).integers(0, 4, (6, 4)).astype(float) + np.eye(4)[0]
    fast = KIND.weighted_scores(result, gold, task, times)
    slow = repeated_scores(KIND, result, gold, task, times)
    assert fast.keys() == slow.keys()
    for name in fast:
        assert np.allclose(fast[name], slow[name])
    assert BootstrapScorer(KIND, task, 20).primary(result, gold).value == pytest.approx(2 / 3)


def test_two_models_are_compared():
    result = mixed()[0]
    others = result.copy()
    others["text"][0], others["answered"][1] = "The Good film", False
    assert KIND.same_decision(result, others).tolist() == [True, False, True, True]
    assert KIND.distance(result, others).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_predictions_and_gold_can_be_stored(tmp_path):
    result, gold, task = mixed()
    np.savez(tmp_path / "a.npz", allow_pickle=False, found=result, gold=gold)
    with np.load(tmp_path / "a.npz") as stored:
        assert KIND.score(stored["found"], stored["gold"], task) == KIND.score(result, gold, task)


def test_words_never_hold_a_text():
    result, gold, task = mixed()
    descriptions = KIND.describe(result, task) + KIND.describe_gold(gold, task)
    assert not any("good" in words or "bad" in words for words in descriptions)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_outputs_that_are_no_numbers(tokens, broken):
    batch = KIND.collate(KIND.examples(read([]), info(), tokens), 0)
    scores = np.zeros(batch["input_ids"].shape, np.float32)
    scores[0, 1] = broken
    with pytest.raises(ModelError, match="NaN or infinite for 1 of 1"):
        KIND.decode({"start_logits": scores, "end_logits": scores}, batch, info())
    with pytest.raises(ModelError, match="start_logits have the shape"):
        KIND.decode({"start_logits": scores[:, 1:], "end_logits": scores}, batch, info())


def test_the_floor_finds_names_and_keeps_silent_where_that_is_better():
    context = "The plot was dull. The film was made by Ada Byron in 1843. Nobody saw it."
    rows = [read(["Ada Byron"], context, question="Who made the film?")]
    rows[0]["question"] = "Who made the film?"
    when = {**read(["1843"], context), "question": "In which year was the film made?"}
    result = baseline_predictions([rows[0]], [rows[0], when], info())
    assert result["text"].tolist() == ["Ada Byron", "1843"]
    silent = baseline_predictions([{**when, "answers": [], "start": -1}], [when], info())
    assert not silent["answered"].any()
    empty = baseline_predictions(rows, [{**rows[0], "context": "", "answers": []}], info())
    assert not empty["answered"].any()


def test_real_rows_are_read(data_folder):
    path = data_folder / "squad/dev-v2.0.json.gz"
    rows = [KIND.read_row(raw.values, task_of(), (), raw.where) for raw in file_rows(path, Data(), "test")]
    assert len(rows) == 11_873
    assert sum(not row["answers"] for row in rows) == 5_945
    gold = KIND.gold(rows)
    perfect = passages(("", 0.0))[np.zeros(len(rows), np.intp)].astype(prediction_fields(300))
    perfect["text"] = [row["answers"][0] if row["answers"] else "" for row in rows]
    perfect["answered"] = [bool(row["answers"]) for row in rows]
    assert KIND.score(perfect, gold, info()) == {"f1": 1.0, "exact_match": 1.0, "answerable": 1.0}
    assert json.loads(gold["answers"][0])
