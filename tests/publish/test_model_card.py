from dataclasses import replace

import pytest
import yaml

import compress
from compress.model_folder.model_history import VocabularyInfo
from compress.model_folder.model_info import GOLDEN_FILE, read_info, write_info
from compress.publish.entry import make_entry
from compress.publish.model_card import base_model, front_matter, hub_data, model_card
from compress.report.run_facts import ServiceFacts
from compress.runtime.model_formats import RUN_MODES
from compress.tasks import KINDS
from tests.report.conftest import apply_gates, edited
from tests.run_readme import run_readme


@pytest.fixture
def entry(winner, report):
    return make_entry({"cpu": winner}, report, "films-small")


def split(card: str) -> tuple[dict, str]:
    _, front, body = card.split("---\n", 2)
    return yaml.safe_load(front), body


def test_front_matter_has_the_known_facts(entry):
    front, _ = split(model_card(entry))
    assert front["base_model"] == "google-bert/bert-base-uncased"
    assert not {"license", "language"} & set(front)  # of the user's own model they are what the recipe states
    assert front["pipeline_tag"] == "text-classification"
    assert front["library_name"] == "onnx"
    assert front["tags"] == ["compress", "encoder", "distilled", "pruned", "int8"]
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.906}]


def test_licence_and_language_are_those_that_the_recipe_states(winner, make_report):
    recipe = {"teacher": {"source": "minilm-l6"}, "publish": {"license": "cc-by-4.0", "language": ["de", "fr"]}}
    report = apply_gates(make_report(recipe=recipe))
    front, body = split(model_card(make_entry({"cpu": winner}, report, "films-small")))
    assert (front["license"], front["language"]) == ("cc-by-4.0", ["de", "fr"])
    assert "- Licence of the teacher's weights: apache-2.0" in body


def test_the_body_has_scores_speed_and_origin(entry):
    _, body = split(model_card(entry))
    assert "19.1× faster and 6.57× smaller than its teacher in PyTorch fp32, with 99.0 % of its accuracy" in body
    assert " (91.7 % of what it gains over a bag of words)." in body
    assert 'compress.open("films-small").predict(["a text"])' in body
    assert "| accuracy | 90.6 | 88.8 to 92.4 | 91.5 | 80.6 |" in body
    assert "1 thread, batch 1, lengths of the data" in body
    assert "- Licence of the teacher's weights: apache-2.0" in body
    assert f"- Built from: step export, {'f' * 16}" in body


def test_the_runner_of_the_card_works_as_printed(published):
    predictions = compress.open(published).predict(["good film", "bad plot"], batch=1)
    lines = run_readme(published, "good film", "bad plot")
    assert [line.split()[0] for line in lines] == [each["label"] for each in predictions]


def test_a_further_variant_has_a_runner_of_its_own(two_winners, two_target_report, publish):
    folder = publish(two_winners, two_target_report) / "variants" / "student-onnx-fp32"
    assert run_readme(folder, "good film")
    assert (folder / GOLDEN_FILE).is_file()


@pytest.mark.parametrize("source", ["./my/own/teacher", "/home/someone/teacher", "unknown-card"])
def test_unknown_facts_are_left_out(winner, make_report, source):
    report = apply_gates(make_report(recipe={"teacher": {"source": source}}))
    card = model_card(make_entry({"cpu": winner}, report, "films-small"))
    front, body = split(card)
    assert {"license", "base_model", "language", "datasets"} & set(front) == set()
    assert source not in card
    assert "Licence" not in body


def test_a_teacher_from_the_hub_is_named(winner, make_report):
    report = apply_gates(make_report(recipe={"teacher": {"source": "someone/their-model@v2"}}))
    assert base_model(report) == "someone/their-model"
    assert "license" not in front_matter(make_entry({"cpu": winner}, report, "a"))


def test_data_from_the_hub_is_named_without_its_configuration(make_report):
    report = make_report()

    def of(source: str) -> list[str] | None:
        return hub_data(report.model_copy(update={"data": report.data.model_copy(update={"source": source})}))

    assert of("nyu-mll/glue/sst2") == ["nyu-mll/glue"]
    assert of("train.tsv, dev.tsv") is None
    assert of("builtin sentence_starts") is None


def test_a_task_on_pairs_has_a_pair_as_sample(winner, make_report):
    report = make_report()
    pairs = report.model_copy(update={"task": report.task.model_copy(update={"text": ("one", "two")})})
    card = model_card(make_entry({"cpu": winner}, apply_gates(pairs), "a"))
    assert '.predict([("a text", "another text")])' in card


def used_at(report, **changes):
    """The report with its winner's target, and its runtime, changed."""
    target = report.targets[0].model_copy(update=changes)
    return report.model_copy(update={"targets": (target, *report.targets[1:])})


def test_usage_names_a_placement_other_than_one_thread(winner, report):
    card = model_card(make_entry({"cpu": winner}, used_at(report, threads=4), "a"))
    assert "# pip install 'compress-encoders'\nimport compress\nfrom compress.runtime import Placement\n" in card
    assert 'compress.open("a", Placement("cpu", threads=4)).predict(["a text"])' in card


@pytest.mark.parametrize(
    ("variant", "package", "needs"),
    [
        (RUN_MODES["torch-graph-bf16"], "compress-encoders[train]", "PyTorch and a CUDA device"),
        (
            RUN_MODES["onnx-tensorrt"],
            "compress-encoders",
            "onnxruntime-gpu, TensorRT's own libraries and a CUDA device",
        ),
    ],
)
def test_usage_on_cuda_names_its_requirements(winner, report, variant, package, needs):
    entry = make_entry({"cpu": winner}, used_at(report, device="cuda"), "a")
    main = replace(entry.main, row=entry.main.row.model_copy(update={"variant": variant}))
    card = model_card(replace(entry, variants=(main,)))
    assert f"# pip install '{package}'\n# It needs {needs}.\nimport compress\n" in card
    assert 'compress.open("a", Placement("cuda", threads=1)).predict(["a text"])' in card


def test_the_usage_example_runs(winner, report, monkeypatch):
    """Run in the folder above the model, as the card says."""
    code = model_card(make_entry({"cpu": winner}, used_at(report, threads=2), winner.name)).split("```")[1]
    monkeypatch.chdir(winner.parent)
    given = code.removeprefix("python\n").strip().rpartition("\n")
    names: dict = {}
    exec(given[0], names)
    [answer] = eval(given[2], names)
    assert answer["label"] in {"bad", "good"}


def test_remarks_are_included(winner, make_report):
    report = make_report()
    report = apply_gates(report.model_copy(update={"data": report.data.model_copy(update={"duplicates": 3})}))
    assert "- Note: Texts of test that are also in train: 3." in model_card(make_entry({"cpu": winner}, report, "a"))


@pytest.mark.parametrize(
    ("tested", "line"),
    [
        (
            True,
            "large; agreement with it on 872 answers that were held back: accuracy 90.6 (95 % interval 88.8 to 92.4)",
        ),
        (False, "large"),
    ],
)
def test_the_service_that_gave_the_labels_is_named(winner, make_report, tested, line):
    report = make_report().model_copy(update={"service": ServiceFacts(model="large", tested=tested)})
    entry = make_entry({"cpu": winner}, apply_gates(report), "a")
    assert f"- Labels: answers of the service's model {line}\n" in model_card(entry)
    assert "Labels: " not in model_card(make_entry({"cpu": winner}, apply_gates(make_report()), "a"))


def test_requirements_are_listed_if_measured(winner, make_full_report):
    body = model_card(make_entry({"cpu": winner}, make_full_report(), "a"))
    assert "- 22.7 M parameters, 10.8 M without embeddings\n- 2.41 GFLOP for a row of 128 word pieces" in body
    assert "- 290 MB of memory at most for a process that serves in batches of 32" in body
    assert "- 1.4 s from process start to the first prediction" in body
    assert "a row, read from" not in body


def test_speed_is_per_choice_for_multiple_choice(winner, make_report):
    report = make_report()
    report = apply_gates(report.model_copy(update={"task": report.task.model_copy(update={"kind": "multiple_choice"})}))
    body = model_card(make_entry({"cpu": winner}, report, "a"))
    assert "faster for 1 choice and " in body
    assert "the model alone, one call with a batch of choices; end to end covers complete rows" in body


def test_unstable_timings_are_marked(winner, make_report, latency_of):
    unstable = latency_of(0.61, 8, status="unstable", reason="the hypervisor took 20 % of the cores")
    report = apply_gates(edited(make_report(), "pruned/onnx-int8", latency=unstable))
    assert "≈ An unstable timing" in model_card(make_entry({"cpu": winner}, report, "a"))


def test_an_undecided_winner_is_marked(winner, make_report):
    def wide(result):
        versus = result.select.versus_teacher.model_copy(update={"low": -0.1, "high": 0.1})
        return result.model_copy(update={"select": result.select.model_copy(update={"versus_teacher": versus})})

    report = apply_gates(make_report(results=tuple(map(wide, make_report().results))))
    card = model_card(make_entry({"cpu": winner}, report, "a"))
    assert "its accuracy (91.7 % of what it gains over a bag of words). Its gate is undecided" in card
    assert "- Note: On cpu the winner is undecided, pruned/onnx-int8 is the fastest of 8 undecided ones" in card


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_input_is_valid_for_its_kind(kind, winner, make_report):
    text = ("one", "two")[: KINDS[kind].text_columns[0]]
    metric = KINDS[kind].metrics[0].name
    report = make_report()
    result = report.results[-1]
    scores = {metric: result.test.primary}
    task = report.task.model_copy(update={"kind": kind, "text": text, "metric": metric})
    test = result.test.model_copy(update={"scores": scores, "metric": metric})
    report = apply_gates(edited(report, result.key, test=test).model_copy(update={"task": task}))
    card = model_card(make_entry({"cpu": winner}, report, "a"))
    sample = eval(card.partition(".predict([")[2].partition("])\n")[0])
    assert KINDS[kind].from_input(sample, task)


def test_the_share_of_truncated_texts_is_shown(entry):
    assert "- Truncated texts: 0.0 % of test, at 128 word pieces" in model_card(entry)


def test_a_pruned_vocabulary_is_shown(winner, make_report):
    vocabulary = VocabularyInfo(rule="seen", pieces_before=30522, pieces=2062, changed={"train": 0.0, "test": 0.025})
    write_info(winner, read_info(winner).model_copy(update={"vocabulary": vocabulary}))
    card = model_card(make_entry({"cpu": winner}, apply_gates(make_report()), "a"))
    cut = "rows tokenized differently than before: 0.0 % of train, 2.5 % of test"
    assert f"- Vocabulary: 2,062 of 30,522 word pieces (seen); {cut}\n" in card


def test_layers_that_stay_in_fp32_are_named(winner, make_report):
    assert "Not quantized" not in model_card(make_entry({"cpu": winner}, apply_gates(make_report()), "a"))
    info = read_info(winner)
    assert info.variant is not None
    variant = info.variant.model_copy(update={"fp32_layers": ("bert.pooler.dense", "classifier")})
    write_info(winner, info.model_copy(update={"variant": variant}))
    card = model_card(make_entry({"cpu": winner}, apply_gates(make_report()), "a"))
    assert "- Not quantized: bert.pooler.dense, classifier\n" in card


def test_the_documents_that_are_searched_are_counted(winner, make_report):
    report = make_report()
    report = apply_gates(report.model_copy(update={"data": report.data.model_copy(update={"documents": 5000})}))
    assert "872 test; documents searched on test: 5,000\n" in model_card(make_entry({"cpu": winner}, report, "a"))


def test_every_variant_is_listed_with_its_target(two_winners, two_target_report):
    card = model_card(make_entry(two_winners, two_target_report, "films"))
    front, body = split(card)
    assert front["tags"] == ["compress", "encoder", "distilled", "pruned", "int8", "fp32"]
    assert "| pruned/onnx-int8 | films | cpu (1 thread, batch 1, lengths of the data) |" in body
    assert "| student/onnx-fp32 | films/variants/student-onnx-fp32 | phone (cpu, 2 threads, batch 1" in body
    assert "## Speed on cpu: pruned/onnx-int8" in body
    assert "## Speed on phone: student/onnx-fp32" in body


def test_the_card_says_where_the_root_runs(four_bit):
    winners, root, report = four_bit
    card = model_card(make_entry(winners, report, "films", root))
    assert "ONNX Runtime 1.19 or later, transformers.js 4.3.1 in Node.js and browsers, optimum. " in card
    assert "in `variants/pruned-onnx-int8`: onnxruntime-1.20 is too old: it needs ONNX Runtime 1.23." in card
    assert "| student/onnx-fp32 | films | – | yes |" in card
    assert "## Speed on cpu: student/onnx-fp32" in card
    assert "```html" in card


def test_a_root_that_does_not_run_everywhere_says_so(four_bit):
    winners, _, report = four_bit
    card = model_card(make_entry(winners, report, "films"))
    assert "runs in onnxruntime-1.20 and web: onnxruntime-1.20 is too old: it needs ONNX Runtime 1.23." in card
    assert "```html" not in card


def test_figures_that_do_not_apply_are_left_out(winner, make_report, quality_of):
    report = apply_gates(make_report(floor=quality_of(0.95).model_copy(update={"versus_teacher": None})))
    _, body = split(model_card(make_entry({"cpu": winner}, report, "films")))
    assert "with 99.0 % of its accuracy." in body.splitlines()[3]
