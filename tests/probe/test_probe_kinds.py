"""Every task kind and family is probed, and bad input ends in one message."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import compress
from compress.cli import main
from compress.errors import CompressError
from compress.families import FAMILIES
from compress.probe.probe_page import probe_page
from compress.probe.probe_result import ProbeReport
from tests.probe.conftest import SETTINGS


@pytest.mark.slow
@pytest.mark.parametrize("kind", SETTINGS)
def test_every_kind_has_a_score_for_each_layer(kind: str, make_recipe: Callable[..., Path], tiny: Any) -> None:
    report = compress.probe_model(tiny(), make_recipe(kind), rows=200)
    (scores,) = report.tasks
    assert [each.layer for each in scores.layers] == ["embeddings", "0", "1", "mean", "mix"]
    assert all(each.score.low <= each.score.value <= each.score.high for each in scores.layers)
    assert (scores.layers[0].compression is None) == (scores.metric == "Spearman")
    assert sum(each.weight or 0 for each in scores.layers) == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_layers_and_heads(family: str, make_recipe: Callable[..., Path], tiny: Any) -> None:
    report = compress.probe_model(tiny(family), [make_recipe("classification"), "length"], rows=100)
    facts = report.models[0]
    assert facts.heads is not None
    assert facts.no_heads is None
    assert len(facts.heads.shares) == sum(facts.heads.per_layer)
    assert all(0 <= share <= 1.001 for shares in facts.heads.shares for share in shares)
    assert len(facts.geometry) == facts.layers + 1


@pytest.mark.slow
def test_what_is_in_the_words_is_found_and_tags_have_selectivity(make_recipe: Callable[..., Path], tiny: Any) -> None:
    report = compress.probe_model(tiny(), make_recipe("token_classification"), rows=300)
    (scores,) = report.tasks
    assert scores.layers[0].score.value > max(0.9, scores.floor)
    assert all(each.selectivity is not None for each in scores.layers if each.layer != "mix")


@pytest.mark.slow
def test_a_further_column_of_tags(make_recipe: Callable[..., Path], tiny: Any) -> None:
    def tagged(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "pos": ["NOUN" if len(word) > 4 else "OTHER" for word in row["tokens"]]}

    recipe = make_recipe("token_classification", change=tagged)
    report = compress.probe_model(tiny(), recipe, tags=["pos"], rows=200)
    assert [each.task for each in report.tasks] == ["token_classification", "pos"]
    with pytest.raises(CompressError, match="no such column"):
        compress.probe_model(tiny(), recipe, tags=["poss"], rows=200)


@pytest.mark.slow
def test_models_are_compared_by_words_whatever_their_tokenizers(
    make_recipe: Callable[..., Path], tiny: Any, tmp_path: Path
) -> None:
    recipe = make_recipe("classification")
    other = tmp_path / "other"
    shutil.copytree(tiny("bert", 1), other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    longest = max((piece for piece in tokenizer["model"]["vocab"] if piece.isalpha()), key=len)
    tokenizer["model"]["vocab"]["zzqq"] = tokenizer["model"]["vocab"].pop(longest)
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    report = compress.probe_model([tiny(), tiny("bert", 1), other], recipe, rows=100)
    first, second = report.changes
    assert first.note is None
    assert second.note is not None
    assert second.words > 0.9 * first.words
    assert all(0 <= value <= 1.0001 for row in first.cka for value in row)
    assert first.layers[1].weights is not None
    assert first.layers[1].weights > 0.1
    assert first.layers[0].same_depth is not None


@pytest.mark.slow
def test_the_command_shows_and_writes(
    make_recipe: Callable[..., Path], tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["probe", str(tiny()), str(tiny("bert", 1)), "--task", str(make_recipe("classification"))]
    assert (
        main([*arguments, "--task", "surface", "--rows", "200", "--to", str(tmp_path / "out"), "--format", "json"]) == 0
    )
    shown = ProbeReport.model_validate_json(capsys.readouterr().out)
    stored = ProbeReport.model_validate_json((tmp_path / "out" / "probe.json").read_bytes())
    assert shown == stored
    assert {each.task for each in shown.tasks} >= {"classification", "length", "word-order", "punctuation"}
    page = (tmp_path / "out" / "probe.html").read_text()
    assert "<svg" in page
    assert "CKA" in page
    assert "share of attention: previous word" in page
    assert main([*arguments, "--rows", "200"]) == 0
    assert "layers and heads" in capsys.readouterr().out


BAD = {
    "one class": (["--set", "task.labels=[bad,good]"], "all labels are the same"),
    "few rows": (["--rows", "3"], "reads 50 to"),
    "no task": (["--task", "sst3"], "one recipe or named task at a time"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message(
    case: str, make_recipe: Callable[..., Path], tiny: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = make_recipe("classification", change=lambda row: {**row, "label": "bad"} if case == "one class" else row)
    options, message = BAD[case]
    assert main(["probe", str(tiny()), "--task", str(recipe), *options]) != 0
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors
    assert "unexpected" not in errors


def test_unknown_models_and_tasks(
    make_recipe: Callable[..., Path], tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = str(make_recipe("classification"))
    assert main(["probe", "nowhere/", "--task", recipe]) != 0
    assert main(["probe", str(tiny()), "--task", "lengths"]) != 0
    assert "length" in capsys.readouterr().err
    assert main(["probe", str(tiny()), str(tiny()), "--task", recipe]) != 0
    assert "named twice" in capsys.readouterr().err
    file = tmp_path / "file"
    file.write_text("")
    assert main(["probe", str(tiny()), "--task", recipe, "--to", str(file)]) != 0
    assert "is a file" in capsys.readouterr().err


@pytest.mark.slow
def test_a_surface_task_that_texts_do_not_allow(make_recipe: Callable[..., Path], tiny: Any) -> None:
    plain = make_recipe("token_classification")
    report = compress.probe_model(tiny(), [plain, "surface"], rows=100)
    assert "punctuation" in report.left_out
    with pytest.raises(CompressError, match="have punctuation"):
        compress.probe_model(tiny(), [plain, "punctuation"], rows=100)


def test_nan_is_never_written(make_recipe: Callable[..., Path], tiny: Any) -> None:
    report = compress.probe_model(tiny(), make_recipe("similarity"), rows=100)
    assert "NaN" not in json.dumps(report.model_dump(mode="json"))


@pytest.mark.slow
def test_a_model_without_attention_maps_is_probed_without_heads(
    make_recipe: Callable[..., Path], tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: object, implementation: str) -> None:
        raise ValueError("it has no eager attention")

    monkeypatch.setattr("transformers.PreTrainedModel.set_attn_implementation", refuse)
    report = compress.probe_model([tiny(), tiny("bert", 1)], make_recipe("classification"), rows=100)
    assert all(each.heads is None and "no eager attention" in str(each.no_heads) for each in report.models)
    assert report.tasks
    assert report.changes
    assert "Heads are not described" in probe_page(report)


@pytest.mark.slow
def test_long_texts_and_pairs_are_cut_alike(make_recipe: Callable[..., Path], tiny: Any) -> None:
    recipe = make_recipe("question_answering", change=lambda row: {**row, "context": row["context"] + " film" * 400})
    report = compress.probe_model(tiny(), recipe, rows=100, overrides=["task.max_length=32"])
    assert report.tasks[0].scored > 20
