"""Multiple choice: rows in every notation of files, predictions of rows with different numbers of choices."""

import numpy as np
import pytest

from compress.errors import DataError, ModelError, UsageError
from compress.recipe.task_schema import Task
from compress.tasks import KINDS, Encoding, task_info
from compress.tasks.validate_task import task_problems

WHERE = "train.jsonl, row 17 (line 17)"
KIND = KINDS["multiple_choice"]
CHOICES = ["red", "green", "blue"]


def task_of(**more):
    return Task(kind="multiple_choice", data={"train": "a", "test": "b"}, **{"text": ("question", "choices"), **more})


INFO = task_info(task_of(label="answer"), ())


def read(answer, choices=CHOICES, **more):
    raw = {"question": "which colour?", "choices": choices, "answer": answer}
    return KIND.read_row(raw, task_of(label="answer", **more), (), WHERE)


def encode(text, pair, most):
    return Encoding([1, len(text), 2, len(pair), 2], [0, 0, 0, 1, 1], truncated=False)


def row_of(label, choices=3):
    return {"text": "q", "choices": CHOICES[:choices], "label": label}


def decided(*scores):
    return [np.array([score]) for score in scores]


def test_a_row_holds_the_question_the_choices_and_the_right_index():
    assert read("B") == {"text": "which colour?", "choices": CHOICES, "label": 1}


@pytest.mark.parametrize(
    ("answer", "first", "index"),
    [("C", 0, 2), ("c", 0, 2), (2, 0, 2), ("2", 0, 2), ("2", 1, 1), (1.0, 1, 0), ("blue", 0, 2), (" green", 0, 1)],
)
def test_answers_are_letters_numbers_or_texts(answer, first, index):
    assert read(answer, first_label=first)["label"] == index


@pytest.mark.parametrize(
    ("answer", "first", "index"),
    [(2, 0, 2), (2, 1, 1), (2.0, 1, 1), ("C", 0, 2), ("4", 0, 3), (4, 0, 3), (4, 1, 3), ("0", 0, 0)],
)
def test_a_json_number_is_an_index_where_choices_are_numbers(answer, first, index):
    assert read(answer, ["1", "2", "3", "4"], first_label=first)["label"] == index


def test_ambiguous_notation_is_refused():
    with pytest.raises(DataError, match="the answer '2' may mean choice B or C") as fault:
        read("2", ["1", "2", "3", "4"])
    assert "write the letter" in fault.value.hint


def test_choices_with_labels_match_by_text_where_no_label_fits():
    choices = {"text": ["B", "green", "blue"], "label": ["A", "B", "C"]}
    assert [read(answer, choices)["label"] for answer in ("B", "green", "blue")] == [1, 1, 2]


def test_one_column_per_choice():
    task = task_of(text=("start", "end0", "end1"), label="right")
    raw = {"start": "she opened", "end0": "the door", "end1": "the moon", "right": 1}
    row = KIND.read_row(raw, task, (), WHERE)
    assert row == {"text": "she opened", "choices": ["the door", "the moon"], "label": 1}


def test_choices_match_by_their_own_labels():
    choices = {"text": CHOICES, "label": ["C", "2", "A"]}
    assert [read(answer, choices)["label"] for answer in ("C", "2", 2, "A")] == [0, 1, 1, 2]
    with pytest.raises(DataError, match=r"row 17.* is 'B' where one of the choices \(C, 2, A, or the text of one\)"):
        read("B", choices)


def test_a_cell_may_hold_a_json_list():
    assert read("A", '["one", "two"]')["choices"] == ["one", "two"]
    with pytest.raises(DataError, match=r"row 17.*where a list of choices is expected"):
        read("A", '["one", "two"')


@pytest.mark.parametrize(
    ("answer", "choices", "message"),
    [
        ("E", CHOICES, r"the answer is 'E' where one of the choices \(A to C, 0 to 2, or the text of one\)"),
        ("3", CHOICES, "the answer is '3' where one"),
        (-1, CHOICES, "the answer is -1 where one"),
        ("purple", CHOICES, "the answer is 'purple' where one"),
        ("A", ["red"], "the row has 1 choice; 2 to 1,000 are expected"),
        ("A", {"text": ["red", "green"], "label": ["A"]}, "the row has 2 choices and 1 label of them"),
        ("A", ["red", " "], "choice 2 of 2 is empty"),
        ("0", ["2", "0"], "the answer '0' may mean choice A or B"),
    ],
)
def test_a_row_that_does_not_fit_says_where_and_how_to_leave_it_out(answer, choices, message):
    with pytest.raises(DataError, match=message) as fault:
        read(answer, choices)
    assert str(fault.value).startswith(WHERE)
    assert "bad_rows: skip" in fault.value.hint


@pytest.mark.parametrize(
    ("answer", "choices", "message"),
    [
        (None, CHOICES, "the answer is empty"),
        ("A", ["red", None], "choice 2 of 2 is empty where text"),
        ("A", ["red", 5], "choice 2 of 2 is 5 where text"),
        ("A", "red or green", "where a list of choices is expected"),
    ],
)
def test_what_is_no_row_at_all_is_refused(answer, choices, message):
    with pytest.raises(DataError, match=message) as fault:
        read(answer, choices)
    assert str(fault.value).startswith(WHERE)


def test_one_example_per_choice_of_the_question_and_its_text():
    examples = KIND.examples(row_of(1), INFO, encode)
    batch = KIND.collate(examples, pad_id=0)
    assert batch["input_ids"].tolist() == [[1, 1, 2, len(choice), 2] for choice in CHOICES]
    assert batch["labels"].tolist() == [0.0, 1.0, 0.0]
    assert batch["labels"].dtype == np.float32
    assert KIND.keep_row_together(INFO)
    assert KIND.output_count(INFO) == 1


def test_an_input_to_predict_has_no_label():
    row = KIND.from_input(("q", "red", "green"), INFO)
    assert row == {"text": "q", "choices": ["red", "green"]}
    assert KIND.to_input({**row, "label": 0}) == ("q", "red", "green")
    assert "labels" not in KIND.collate(KIND.examples(row, INFO, encode), pad_id=0)


@pytest.mark.parametrize("given", ["q", ("q",), ("q", "only one"), ("q", "a", 3)])
def test_a_question_needs_choices(given):
    with pytest.raises(UsageError, match="a question and 2 or more choices"):
        KIND.from_input(given, INFO)


def test_answers_are_probabilities_over_the_choices_of_each_row():
    rows = [row_of(0), row_of(1, choices=2)]
    answers = KIND.predictions(decided(1.0, 2.0, 3.0, 1000.0, 0.0), [3, 2], rows, INFO)
    assert answers.dtype == np.float32
    assert answers[0] == pytest.approx(np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum())
    assert answers[1].tolist() == [1.0, 0.0, -1.0]
    assert KIND.correct(answers, KIND.gold(rows)).tolist() == [False, False]
    assert [result["choice"] for result in KIND.to_json(answers, INFO)] == ["C", "A"]
    assert KIND.to_json(answers, INFO)[1] == {
        "choice": "A",
        "place": 0,
        "probability": 1.0,
        "probabilities": [1.0, 0.0],
    }
    assert KIND.describe(answers, INFO) == ["choice C (67 %)", "choice A (100 %)"]
    assert KIND.describe_gold(KIND.gold(rows), INFO) == ["choice A", "choice B"]


def test_equal_scores_are_no_decision():
    rows = [row_of(index) for index in range(3)]
    answers = KIND.predictions(decided(*[0.5] * 9), [3] * 3, rows, INFO)
    assert KIND.score(answers, KIND.gold(rows), INFO) == {"accuracy": 0.0}


def test_draws_score_as_repeated_rows_do():
    random = np.random.default_rng(0)
    counts = random.integers(2, 6, 40)
    answers = KIND.predictions(decided(*random.normal(size=counts.sum())), counts, [], INFO)
    gold, times = random.integers(0, 2, 40), random.integers(0, 3, (5, 40)).astype(float)
    slow = [
        KIND.score(np.repeat(answers, line.astype(int), 0), np.repeat(gold, line.astype(int)), INFO) for line in times
    ]
    assert KIND.weighted_scores(answers, gold, INFO, times)["accuracy"] == pytest.approx(
        [one["accuracy"] for one in slow]
    )
    assert KIND.correct(answers, gold).mean() == pytest.approx(KIND.score(answers, gold, INFO)["accuracy"])


def test_two_models_are_compared_choice_by_choice():
    ours = KIND.predictions(decided(0.0, 1.0, 0.0, 1.0), [2, 2], [], INFO)
    theirs = KIND.predictions(decided(0.0, 1.0, 1.0, 0.0), [2, 2], [], INFO)
    assert KIND.same_decision(ours, theirs).tolist() == [True, False]
    assert KIND.distance(ours, theirs) == pytest.approx([0.0, np.tanh(0.5)])
    stated = KIND.confidence(ours, np.array([1, 0]))
    assert stated.right.tolist() == [True, False]
    assert stated.stated == pytest.approx([ours[0, 1], ours[1, 1]])


def test_outputs_that_are_no_numbers_are_refused():
    with pytest.raises(ModelError, match="NaN or infinite for 1 of 2 rows"):
        KIND.decode({"logits": np.array([[np.nan], [0.0]])}, {}, INFO)


def test_a_head_of_several_outputs_is_refused():
    with pytest.raises(ModelError, match=r"the shape .* where this task expects .any, 1."):
        KIND.decode({"logits": np.zeros((2, 3))}, {}, INFO)


def test_settings_without_effect_are_refused():
    paths = {problem.path for problem in task_problems(task_of(labels=("a", "b"), long="mean"))}
    assert paths == {("task", "labels"), ("task", "long")}
    assert task_problems(task_of(first_label=1)) == []
    assert task_problems(task_of(text=("only",)))
