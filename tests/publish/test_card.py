import pytest
import yaml

from compress.publish.card import base_model, front_matter, hub_data, model_card
from compress.publish.zoo import find_subject
from compress.report.judge import judged


@pytest.fixture
def subject(winner, report):
    return find_subject(winner, report, "films-small")


def split(card: str) -> tuple[dict, str]:
    _, front, body = card.split("---\n", 2)
    return yaml.safe_load(front), body


def test_front_matter_says_what_is_known(subject):
    front, _ = split(model_card(subject))
    assert front["license"] == "apache-2.0"
    assert front["base_model"] == "google-bert/bert-base-uncased"
    assert front["language"] == ["en"]
    assert front["pipeline_tag"] == "text-classification"
    assert front["library_name"] == "onnx"
    assert front["tags"] == ["compress", "encoder", "distilled", "pruned", "int8"]
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.906}]


def test_the_body_tells_scores_speed_and_origin(subject):
    _, body = split(model_card(subject))
    assert "19.1× faster and 6.57× smaller than its teacher in PyTorch fp32, with 99.0 % of its accuracy" in body
    assert 'compress.open("films-small").predict(["a text"])' in body
    assert "| accuracy | 90.6 | 88.8 to 92.4 | 91.5 |" in body
    assert "1 thread, batch 1, lengths of the data" in body
    assert "- Licence of the teacher's weights: apache-2.0" in body
    assert f"- Made from: step export, {'f' * 16}" in body


@pytest.mark.parametrize("source", ["./my/own/teacher", "/home/someone/teacher", "unknown-card"])
def test_what_is_not_known_is_left_out(winner, make_report, source):
    report = judged(make_report(recipe={"teacher": {"source": source}}))
    card = model_card(find_subject(winner, report, "films-small"))
    front, body = split(card)
    assert {"license", "base_model", "language", "datasets"} & set(front) == set()
    assert source not in card
    assert "Licence" not in body


def test_a_teacher_from_the_hub_is_named(winner, make_report):
    report = judged(make_report(recipe={"teacher": {"source": "someone/their-model@v2"}}))
    assert base_model(report) == "someone/their-model"
    assert "license" not in front_matter(find_subject(winner, report, "a"))


def test_data_from_the_hub_is_named_without_its_configuration(make_report):
    report = make_report()

    def of(source: str) -> list[str] | None:
        return hub_data(report.model_copy(update={"data": report.data.model_copy(update={"source": source})}))

    assert of("nyu-mll/glue/sst2") == ["nyu-mll/glue"]
    assert of("train.tsv, dev.tsv") is None
    assert of("builtin docstrings") is None


def test_a_pair_is_shown_as_a_pair(winner, make_report):
    report = make_report()
    pairs = report.model_copy(update={"task": report.task.model_copy(update={"text": ("one", "two")})})
    card = model_card(find_subject(winner, judged(pairs), "a"))
    assert '.predict([("a text", "another text")])' in card


def test_remarks_go_along(winner, make_report):
    report = make_report()
    report = judged(report.model_copy(update={"data": report.data.model_copy(update={"duplicates": 3})}))
    assert "- Note: 3 texts of test also stand in train." in model_card(find_subject(winner, report, "a"))
