"""The page of wrong rows: which rows it has, in which order, and that it stays where it belongs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from compress.model_folder.model_info import TaskInfo
from compress.report.pages.render import write_pages
from compress.report.pages.rows_page import MOST_CHARACTERS, WrongRows, disagreements, write_rows_page, wrong_rows
from compress.report.report_schema import ROWS_PAGE
from compress.report.winner_summary import run_addresses
from compress.tasks import KINDS
from compress.tasks.kinds.question_answering import prediction_fields
from compress.tasks.kinds.token_classification import PREDICTION
from compress.tasks.scorer import Scorer
from tests.report.conftest import apply_gates
from tests.report.pages.test_render import Balanced

PUBLISHED = Path(__file__).parents[3] / "reports"
TASK = TaskInfo(
    name="films", kind="classification", text=("text",), labels=("bad", "good"), metric="accuracy", max_length=32
)
ROWS = [{"text": f"text {number}", "text_pair": None} for number in range(4)]
GOLD = np.array([0, 1, 0, 1])
OURS = np.array([[0.4, 0.6], [0.1, 0.9], [0.1, 0.9], [0.7, 0.3]])
TEACHERS = np.array([[0.8, 0.2], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])


def listed(kind, task, rows, gold, answers, teachers=None, **more) -> WrongRows | None:
    return wrong_rows(KINDS[kind], task, rows, gold, answers, teachers, model="a/b", targets=("cpu",), **more)


def of_films(**more) -> WrongRows:
    result = listed("classification", TASK, ROWS, GOLD, OURS, TEACHERS, **more)
    assert result is not None
    return result


def test_the_most_confident_errors_come_first_with_all_answers():
    result = of_films()
    assert [row.row for row in result.rows] == [2, 3, 0]
    assert (result.tested, result.wrong, result.shared, result.teacher_alone) == (4, 3, 1, 1)
    first = result.rows[0]
    assert (first.texts, first.label, first.answer) == (("text 2",), "bad", "good (90 %)")
    assert (first.teacher, first.teacher_is_right) == ("good (70 %)", False)
    assert result.rows[1].teacher_is_right


def test_rows_have_their_numbers_in_the_file_that_test_was_split_off(tmp_path):
    result = of_films(numbers=np.array([4, 11, 17, 30]))
    assert [(row.row, row.number) for row in result.rows] == [(2, 18), (3, 31), (0, 5)]
    write_rows_page(tmp_path, "films", [result])
    page = (tmp_path / ROWS_PAGE).read_text(encoding="utf-8")
    assert '<td class="n" data-label="in the file">18</td>' in page
    write_rows_page(tmp_path, "films", [of_films()])
    assert "in the file" not in (tmp_path / ROWS_PAGE).read_text(encoding="utf-8")


def test_beyond_the_limit_rows_are_counted_and_not_shown(tmp_path):
    result = of_films(most=2)
    assert ([row.row for row in result.rows], result.wrong) == ([2, 3], 3)
    write_rows_page(tmp_path, "films", [result])
    assert "the first 2 are shown" in (tmp_path / ROWS_PAGE).read_text(encoding="utf-8")


def test_long_rows_are_shown_until_their_texts_fill_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr("compress.report.pages.rows_page.MOST_TOGETHER", 12)
    result = of_films()
    assert ([row.row for row in result.rows], result.wrong) == ([2, 3], 3)  # two texts of six characters
    write_rows_page(tmp_path, "films", [result])
    assert "the first 2 are shown" in (tmp_path / ROWS_PAGE).read_text(encoding="utf-8")
    ranked = TASK.model_copy(update={"kind": "ranking", "text": ("text", "candidates"), "labels": (), "metric": "map"})
    rows = [{"text": "which?", "candidates": ["x" * 30, "two"], "label": [1.0, 0.0]}] * 2
    answers = np.array([[0.1, 0.2], [0.1, 0.9]], np.float32)
    assert len(listed("ranking", ranked, rows, KINDS["ranking"].gold(rows), answers, answers).rows) == 1


def test_labels_that_differ_in_case_alone_can_be_filtered(tmp_path):
    task = TASK.model_copy(update={"labels": ("May", "may  ")})
    found = disagreements(KINDS["classification"], task, ROWS, GOLD, OURS, TEACHERS, model="a/b", targets=("cpu",))
    write_rows_page(tmp_path, "films", [], [found])
    page = (tmp_path / ROWS_PAGE).read_text(encoding="utf-8")
    assert all(f'<option value="{label}">' in page for label in task.labels)


def test_the_teachers_own_errors_have_no_second_answer():
    result = listed("classification", TASK, ROWS, GOLD, TEACHERS)
    assert [(row.row, row.teacher) for row in result.rows] == [(1, None), (2, None)]


def test_a_model_without_an_error_has_an_empty_list(tmp_path):
    result = listed("classification", TASK, ROWS, GOLD, np.eye(2)[GOLD], TEACHERS)
    assert (result.wrong, result.rows, result.teacher_alone) == (0, (), 2)
    write_rows_page(tmp_path, "films", [result])
    Balanced().feed((tmp_path / ROWS_PAGE).read_text(encoding="utf-8"))


def test_the_wrong_decision_of_a_row_with_many_decides_the_order():
    task = TASK.model_copy(update={"kind": "multi_label", "metric": "micro_f1"})
    gold = np.array([[1, 0], [0, 1], [1, 1.0]], np.float32)
    ours = np.array([[0.99, 0.6], [0.8, 0.9], [0.9, 0.9]], np.float32)
    result = listed("multi_label", task, ROWS[:3], gold, ours, ours)
    assert [(row.row, row.label, row.answer) for row in result.rows] == [
        (1, "good", "bad (80 %), good (90 %)"),
        (0, "bad", "bad (99 %), good (60 %)"),
    ]


def test_scores_are_listed_by_their_error():
    task = TASK.model_copy(update={"kind": "regression", "labels": (), "metric": "spearman"})
    gold, ours = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.1, 5.0, 3.0, 2.0])
    result = listed("regression", task, ROWS, gold, ours, gold)
    assert [(row.row, row.teacher_is_right) for row in result.rows] == [(1, None), (3, None), (0, None)]
    assert result.order == "the largest error first"
    task = task.model_copy(update={"kind": "similarity", "range": (0.0, 4.0)})
    rows = [{"text": "one", "text_pair": "other"}] * 4
    result = listed("similarity", task, rows, gold, np.array([0.25, 0.5, 0.0, 0.9]), gold)
    assert [row.row for row in result.rows] == [2, 3]
    assert result.rows[0].texts == ("one", "other")


def test_entities_and_answers_are_shown_in_words():
    task = TASK.model_copy(update={"kind": "token_classification", "labels": ("O", "B-city", "I-city"), "metric": "f1"})
    ours = np.zeros((1, 3), PREDICTION)
    ours["tag"], ours["probability"] = [[0, 1, 0]], 0.9
    rows = [{"words": ["to", "New", "York"], "label": [0, 1, 2]}]
    row = listed("token_classification", task, rows, np.array([[0, 1, 2]], np.int16), ours, ours).rows[0]
    assert (row.texts, row.label, row.answer) == (("to New York",), "city: New York", "city: New")

    task = TASK.model_copy(update={"kind": "question_answering", "labels": (), "metric": "f1"})
    rows = [{"question": "when?", "context": "in 1984 or so", "answers": ["1984"], "start": 3}]
    gold = KINDS["question_answering"].gold(rows)
    ours = np.zeros(1, prediction_fields(10))
    ours["text"], ours["answered"], ours["probability"] = "in 1984", True, 0.75
    row = listed("question_answering", task, rows, gold, ours, np.zeros(1, prediction_fields(10))).rows[0]
    assert (row.label, row.answer) == ("1984", "in 1984 (75 %)")
    assert row.teacher.startswith("no answer")


def test_choices_are_lettered_and_candidates_without_probabilities_keep_their_order(tmp_path):
    task = TASK.model_copy(update={"kind": "multiple_choice", "text": ("text", "choices"), "labels": ()})
    rows = [{"text": "which?", "choices": ["one", "two"], "label": 0}]
    result = listed("multiple_choice", task, rows, np.array([0]), np.array([[0.2, 0.8]]))
    assert result.rows[0].texts == ("which?", "one", "two")
    write_rows_page(tmp_path, "films", [result])
    assert '<ol type="A"><li>one</li><li>two</li></ol>' in (tmp_path / ROWS_PAGE).read_text(encoding="utf-8")

    task = TASK.model_copy(update={"kind": "ranking", "text": ("text", "candidates"), "labels": (), "metric": "map"})
    rows = [{"text": "which?", "candidates": ["one", "two"], "label": [1.0, 0.0]}] * 2
    answers = np.array([[0.1, 0.2], [0.1, 0.9]], np.float32)
    result = listed("ranking", task, rows, KINDS["ranking"].gold(rows), answers, answers)
    assert ([row.row for row in result.rows], result.order) == ([0, 1], "in the order of test")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_errors_to_show(kind):
    own = type(KINDS[kind])
    assert own.correct is not Scorer.correct or own.errors is not Scorer.errors


def test_the_page_is_escaped_and_loads_nothing(tmp_path):
    rows = [{"text": "<script>alert(1)</script>" + "x" * 2 * MOST_CHARACTERS, "text_pair": "<b>"}] * 4
    write_rows_page(tmp_path, "<i>", [listed("classification", TASK, rows, GOLD, OURS, TEACHERS)])
    page = (tmp_path / ROWS_PAGE).read_text(encoding="utf-8")
    Balanced().feed(page)
    assert page.count("<script") == 1  # its own
    assert "&lt;script&gt;alert" in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "x" * MOST_CHARACTERS not in page
    assert re.findall(r'(?:src|href)="(?!data:|report\.html")', page) == []
    assert "url(" not in page


def test_only_a_report_beside_the_page_links_to_it(make_full_report, tmp_path):
    report = make_full_report()
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    other.mkdir()
    write_rows_page(run, report.name, [of_films()])
    write_pages(run, report, run_addresses(report))
    write_pages(other, report)
    assert 'href="rows.html"' in (run / "report.html").read_text(encoding="utf-8")
    assert 'href="rows.html"' not in (other / "report.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in other.iterdir()) == ["report.html", "report.json", "report.md"]
    assert not any("text 2" in path.read_text(encoding="utf-8") for path in run.glob("report.*"))


def test_published_reports_have_no_rows():
    assert not list(PUBLISHED.rglob(ROWS_PAGE))
    pages = [path.read_text(encoding="utf-8") for path in PUBLISHED.rglob("report.html")]
    assert pages
    assert not any('href="rows.html"' in page or "runs/" in page for page in pages)


def test_the_first_screen_has_the_commands_that_use_the_winner(make_report, tmp_path):
    report = apply_gates(make_report())
    write_pages(tmp_path, report, run_addresses(report))
    for name in ("report.html", "report.md"):
        page = (tmp_path / name).read_text(encoding="utf-8").replace("&#34;", '"')
        assert 'compress predict runs/films/winner/cpu "a text"' in page
        assert 'compress.open("runs/films/winner/cpu").predict(["a text"])' in page
    write_pages(tmp_path, report)
    assert "runs/films" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "report.json").read_bytes())["name"] == "films"
