"""The recipe of `compress label`: all problems at once, with lines; the other kinds; rows at even distances."""

import json
import re
from pathlib import Path

import pytest

from compress.console import Console
from compress.errors import RecipeError
from compress.label.label_task import LabelTask, load_label_recipe
from compress.label.prompt_and_answer import messages_for
from compress.tasks import KINDS
from tests.label.chat_server import KEY, answer
from tests.without_torch import light

BROKEN = f"""\
task: {{kind: classification, data: {{train: rows.jsonl}}, text: review}}
endpoint:
  url: ftp://somewhere
  modle: large
  key: {KEY}
samples: 0
limit: 5
"""


def problems(tmp_path, text, *overrides):
    path = tmp_path / "reviews.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError) as refused:
        load_label_recipe(path, overrides)
    return refused.value.message


def test_all_problems_at_once_with_lines(tmp_path):
    message = problems(tmp_path, BROKEN)
    for part in (
        "line 3, endpoint.url: expected the address",
        "line 4, endpoint.modle: unknown key; did you mean model",
    ):
        assert part in message
    assert "line 5, endpoint.key: expected the name of an environment variable" in message
    assert "line 6, samples" in message
    assert KEY not in message


VALID = """\
task: {kind: classification, data: {train: rows.jsonl}, text: review, labels: [bad, good]}
endpoint: {url: "http://localhost/v1", model: large}
"""


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("limit=5", "limit needs prices"),
        ("task.labels=null", "task.labels: is missing"),
        ("scores=[1, 5]", "scores: has no effect for classification"),
        ("scores=[5, 1]", "expected the lowest and the highest"),
        ("prompt=Which of {lables}?", "nothing replaces '{lables}'; did you mean labels"),
        ("prompt.input=About {revue}", "has no {review}"),
        ("meanings={fine: so so}", "is no label"),
        ("task.text=label", "would be overwritten"),
        ("temperature=3", "temperature"),
        (f"endpoint.key={KEY}", "never the key itself"),
    ],
)
def test_single_problems(tmp_path, override, message):
    text = problems(tmp_path, VALID, override)
    assert message in text
    assert KEY not in text


@pytest.mark.parametrize("column", ["0", "Text (en)", "review/body", "#1 String"])
def test_columns_of_any_name_are_shown(tmp_path, column):
    (tmp_path / "reviews.yaml").write_text(VALID.replace("text: review", f"text: {column!r}"))
    (_, user) = messages_for(["a good film {0}"], load_label_recipe(tmp_path / "reviews.yaml", ()))
    assert user["content"] == "a good film {0}"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not KINDS[kind].answer_form])
def test_kinds_that_a_service_cannot_label_are_refused(tmp_path, kind):
    message = problems(tmp_path, VALID, f"task.kind={kind}")
    assert f"a service cannot label {kind}; it can label classification, multi_label, regression" in message


def test_a_password_in_the_address_is_refused_and_not_shown(tmp_path):
    message = problems(tmp_path, VALID, "endpoint.url=https://user:hunter2@localhost/v1")
    assert "endpoint.url: an address has no password" in message
    assert "hunter2" not in message


def test_the_documented_recipe_is_valid(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "labelling.md"
    (block,) = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "reviews.yaml"
    path.write_text(block)
    recipe = load_label_recipe(path)
    assert (recipe.samples, recipe.sampling_temperature, recipe.name) == (3, 1.0, "reviews")


def test_samples_at_temperature_zero_are_equal(tmp_path):
    assert "are equal" in problems(tmp_path, VALID, "samples=2", "temperature=0")


def test_an_empty_file(tmp_path):
    assert "the minimum is 'task: …' and 'endpoint: {url: …, model: …}'" in problems(tmp_path, "")


def test_a_limit_takes_rows_from_all_over_the_data(labelling):
    labelling.rows([f"film {number}" for number in range(100)])
    task = LabelTask(labelling.load("task.data.limit=4"), Console("quiet"))
    assert [text.texts for text in task.texts()] == [("film 24",), ("film 49",), ("film 74",), ("film 99",)]


def test_lines_of_a_text_file_are_labelled(labelling):
    file = labelling.folder / "texts.txt"
    file.write_text("a good film; really\n\na bad one\n")
    labelling.recipe["task"]["data"]["train"] = str(file)
    texts = [text.texts for text in LabelTask(labelling.load(), Console("quiet")).texts()]
    assert texts == [("a good film; really",), ("a bad one",)]


def test_held_back_texts_do_not_depend_on_the_prompt(labelling):
    texts = [
        [text.texts for text in LabelTask(labelling.load(*changes), Console("quiet")).texts() if text.held_out]
        for changes in ([], ["prompt=Is it good?"], ["seed=1"])
    ]
    assert texts[0] == texts[1] != texts[2]


def test_pairs(labelling, server):
    rows = [json.dumps({"one": f"a {number}", "other": "b"}) for number in range(3)]
    (labelling.folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    server.reply = lambda request: answer('{"label": "good"}')
    assert labelling.run("task.text=[one, other]", "held_out=0.0").texts == 3
    assert server.texts[0] == "one:\na 0\n\nother:\nb"
    assert labelling.read("train.jsonl")[0] == {"one": "a 0", "other": "b", "label": "good"}


def test_multi_label(labelling, server):
    server.reply = lambda request: answer('{"labels": ["good"]}' if "film 1" in str(request) else '{"labels": []}')
    labelling.run("task.kind=multi_label", "samples=2", "held_out=0.0")
    row = labelling.read("train.jsonl")[1]
    assert (row["label"], row["soft_labels"]) == (["good"], {"bad": 0.0, "good": 1.0})


def test_regression(labelling, server):
    server.reply = lambda request: answer('{"score": 4}')
    labelling.run("task.kind=regression", "task.labels=null", "scores=[1, 5]", "samples=2", "held_out=0.0")
    assert labelling.read("train.jsonl")[0] == {"review": "a bad film 0", "label": 4.0}
    schema = server.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["score"] == {"type": "number", "minimum": 1.0, "maximum": 5.0}


def test_a_dry_run_needs_neither_torch_nor_a_key(labelling, server, monkeypatch):
    monkeypatch.delenv("SERVICE_KEY")
    labelling.load()
    done = light("label", str(labelling.file), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "12 requests" in done.stdout
    assert not server.requests


@pytest.mark.slow
def test_labelling_needs_no_torch(labelling):
    labelling.load()
    done = light("label", str(labelling.file), "--to", str(labelling.target))
    assert done.returncode == 0, done.stderr
    assert len(labelling.written) == 12
