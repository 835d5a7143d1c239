"""Requirements that a recipe's models do not meet are reported before anything is trained."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from compress import model_sources
from compress.cli import main
from compress.errors import ModelError, UsageError
from compress.model_folder.model_info import VariantInfo, read_info, write_info
from compress.models.encoder_parts import capture_parts, layers_of
from compress.models.load_save import load
from compress.models.tiny import write_tiny_model
from compress.pipeline.preflight import preflight
from compress.pipeline.preflight.model_compatibility import compatibility_errors
from compress.pipeline.preflight.preflight import absent_models
from compress.pipeline.run import Options, prepare
from compress.pipeline.strip_paths import recipe_without_paths
from compress.steps.model_configs import attention_widths
from compress.train.objective import forward

EVERYTHING = ("data", "finetune", "distill", "prune")


@pytest.fixture
def errors_of(recipe_file, tmp_path):
    """Return the errors of the tiny recipe with these overrides."""

    def find(*overrides, due=EVERYTHING, task=None):
        plan = prepare(recipe_file, overrides, Options(runs=tmp_path / "runs"))
        return [*absent_models(plan.recipe, due), *compatibility_errors(plan.recipe, task=task)]

    return find


@pytest.fixture
def no_hub(monkeypatch):
    monkeypatch.setattr(preflight, "hub_state", lambda timeout: "not reachable")
    for module in (preflight, model_sources):
        monkeypatch.setattr(module, "cached_checkpoint", lambda *_: None)


def test_valid_recipe_has_no_errors(errors_of):
    assert errors_of() == []


def test_more_layers_than_the_teacher(errors_of):
    assert errors_of("student.layers=9") == [
        "student: a student of 9 layers cannot be taken from 2 layers; the most is 2."
    ]


def test_batch_losses_need_two_texts_in_each_process(errors_of, monkeypatch):
    alone = ("prune.recover.losses.similarity=1", "prune.recover.batch_size=16")
    assert errors_of(*alone) == []
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("RANK", "0")
    (error,) = errors_of(*alone)
    assert error.startswith("prune.recover: similarity: compares the texts of a process's share of the batch")
    assert "set batch_size to 32 or more" in error


def test_family_that_cannot_be_pruned_or_captured(errors_of, tmp_path):
    write_tiny_model(tmp_path / "modern", "modernbert")
    pruned, observed = errors_of(f"teacher={tmp_path / 'modern'}")
    assert pruned.startswith("prune: modernbert cannot be pruned")
    assert observed.startswith("distill: modernbert computes query together with others")
    assert errors_of(f"teacher={tmp_path / 'modern'}", "prune=null", "distill={soft_label: 1.0}") == []


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("prune.heads=0.9", "prune: heads: 0.9 cannot be removed: every layer keeps at least one head"),
        ("prune={ffn: 0.9, cuts: 3}", "prune: ffn: 0.9 cannot be removed"),
        ("prune={to: {parameters: 0.01}}", "prune: to.parameters: 0.01 of the layers' parameters cannot be reached"),
    ],
)
def test_goals_of_pruning_that_cannot_be_reached(errors_of, override, message):
    (error,) = errors_of(override)
    assert error.startswith(message)


def test_student_of_another_family_can_be_pruned(errors_of, tmp_path):
    write_tiny_model(tmp_path / "albert", "albert")
    assert errors_of(f"teacher={tmp_path / 'albert'}", f"student={tmp_path / 'teacher'}") == []


def test_unknown_family_or_config(errors_of, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    assert "model family 'gpt2' is not supported" in errors_of(f"teacher={folder}")[0]
    (folder / "config.json").write_text("{")
    assert "config.json cannot be read" in errors_of(f"teacher={folder}")[0]
    (folder / "config.json").write_text("{}")
    assert "names no model_type" in errors_of(f"teacher={folder}")[0]


@pytest.mark.usefixtures("no_hub")
def test_absent_hub_student_is_reported_first(errors_of):
    (error,) = errors_of("student=bert-tiny")
    assert error.startswith("student: there is no folder google/bert_uncased_L-2_H-128_A-2, and google/bert_uncased_L-")
    assert "_A-2@main is not on this machine; model hub: not reachable" in error
    assert errors_of("student=bert-tiny", due=("prune",)) == []


@pytest.mark.usefixtures("no_hub")
def test_family_of_an_absent_teacher_is_that_of_its_card(errors_of):
    (error,) = errors_of("teacher=albert-base", due=("prune",))
    assert error.startswith("prune: albert cannot be pruned")


def test_command_refuses_before_the_first_step(recipe_file: Path, tmp_path: Path, capsys):
    command = ["run", str(recipe_file), "--runs", str(tmp_path / "runs"), "--set", "student.layers=9"]
    assert main(command) == 2
    assert "the run cannot start:\n  student: a student of 9 layers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("student.hidden=4096", "would be wider"),
        ("student.factors=4096", "4096 numbers per token are more than the student's hidden size"),
        ("student.ffn=1", "start: slice takes the most important part"),
    ],
)
def test_impossible_student_shapes(override: str, message: str, errors_of):
    start = "teacher" if "ffn" in override else "slice"
    (error,) = errors_of(override, f"student.start={start}")
    assert error.startswith("student: ")
    assert message in error


@pytest.mark.parametrize("layers", ["0", "-1", "2.5"])
def test_invalid_numbers_of_layers(layers: str, recipe_file: Path, capsys):
    assert main(["plan", str(recipe_file), "--set", f"student.layers={layers}"]) == 2
    assert f"student.layers: expected a number of layers up to 1000 or a share below 1, got {layers}" in (
        capsys.readouterr().err
    )


def test_runs_folder_that_is_a_file(recipe_file: Path, tmp_path: Path, capsys):
    assert main(["run", str(recipe_file), "--runs", str(tmp_path / "train.csv")]) == 2
    assert "--runs" in capsys.readouterr().err


def test_invalid_or_unused_cross_encoder(errors_of, tmp_path):
    (error,) = errors_of("distill={soft_label: 1.0, margin: 1.0}")
    assert error.startswith("distill: the loss margin compares a query's documents, and classification has none")
    (error,) = errors_of(f"distill={{soft_label: 1.0, cross_encoder: {tmp_path / 'teacher'}}}")
    assert error.startswith("distill: cross_encoder is set, but no loss uses it")


def test_cross_encoder_is_identified_by_its_contents(recipe_file: Path, tmp_path: Path):
    def fingerprint(folder: str) -> str:
        override = f"distill={{soft_label: 1.0, cross_encoder: {tmp_path / folder}}}"
        steps = prepare(recipe_file, [override], Options(runs=tmp_path / "runs")).steps
        return next(step.fingerprint for step in steps if step.name == "distill")

    for folder in ("one", "same", "other"):
        write_tiny_model(tmp_path / folder, "bert")
    (tmp_path / "other" / "notes.txt").write_text("another")
    assert fingerprint("one") == fingerprint("same") != fingerprint("other")
    with pytest.raises(UsageError, match="there is no folder"):
        fingerprint("none")


def test_published_recipe_names_no_folders(recipe_file: Path, tmp_path: Path):
    folder = tmp_path / "teacher"
    override = f"distill={{soft_label: 1.0, cross_encoder: {folder}, teachers: [{folder}]}}"
    plan = prepare(recipe_file, [override], Options(runs=tmp_path / "runs"))
    message = recipe_without_paths(plan.recipe)
    assert message["distill"]["teachers"][0]["source"] == "teacher"
    assert message["distill"]["cross_encoder"] == "teacher"
    assert str(tmp_path) not in str({**message, "measure": None})


def test_exported_folder_is_no_teacher_or_student(errors_of, tiny_folder):
    folder = tiny_folder("bert")
    message = VariantInfo(name="onnx-int8", format="onnx", precision="int8", runtime="onnxruntime")
    write_info(folder, read_info(folder).model_copy(update={"variant": message}))
    (folder / "model.safetensors").unlink()
    for part in ("teacher", "student"):
        (error,) = errors_of(f"{part}={folder}", "distill={soft_label: 1.0}")
        assert error.startswith(
            f"{part}: {folder} holds an exported model (onnx-int8): it can be run, but not loaded or"
        )
        assert ".steps beside the run" in error
    with pytest.raises(ModelError, match="holds an exported model"):
        load(folder)


RETRIEVAL = ("task.kind=retrieval", "task.text=text", "task.label=label")


def test_lengths_and_tokenizers_are_checked(errors_of, tmp_path):
    (error,) = errors_of("task.max_length=600")
    assert error.startswith(
        f"task: texts may be 600 tokens long, but the model {tmp_path / 'teacher'} has 514 positions"
    )
    (error,) = errors_of("targets=[cpu, {device: cpu, length: 600}]")
    assert error.startswith("targets: cpu-l600 has inputs of 600 word pieces, and the models have 514 positions")
    (error,) = errors_of("measure.grid={length: [data, 600]}")
    assert error.startswith("targets: measure.grid has inputs of 600 word pieces, and the models have 514 positions")
    (error,) = errors_of("student.embedding=16")
    assert error.startswith("student: student.embedding: 16 sets an embedding width, but classification has")
    rows = [*RETRIEVAL, "prune=null", "distill={soft_label: 1.0}"]
    (error,) = errors_of(*rows, "student.embedding=64")
    assert error.startswith("student: the student's embedding width 64 exceeds the teacher's (32)")
    assert errors_of(*rows, "student.embedding=32") == []


def test_phase_without_losses(errors_of):
    (error,) = errors_of("distill={phases: [{share: 0.5, soft_label: 1.0}, {share: 0.5}]}")
    assert error.startswith("distill: in phase 2 all distillation losses and hard_label have weight zero")


@pytest.mark.parametrize("part", ["distill", "prune.recover"])
def test_further_teachers_that_do_not_fit(part, errors_of, tiny_model, tiny_folder, tiny_task, tmp_path):
    def error(*folders):
        named = ", ".join(str(folder) for folder in folders)
        return [
            message.removeprefix(f"{part}: ")
            for message in errors_of(f"{part}={{soft_label: 1.0, teachers: [{named}]}}")
        ]

    tags = tiny_task.model_copy(update={"kind": "token_classification"})
    other_head = tiny_folder(tiny_model("bert", head="ForTokenClassification", vocab_size=141), tags)
    good, many = tiny_folder(tiny_model("bert", vocab_size=141)), tiny_folder(tiny_model("bert", vocab_size=500))
    short = tiny_folder(tiny_model("bert", vocab_size=141, max_position_embeddings=16))
    pieces = tmp_path / "teacher" / "tokenizer.json"
    for folder in (good, many, other_head, short):
        shutil.copy(pieces, folder)
    assert error(good) == []
    assert error(good, many)[0].startswith(f"teachers: {many} has 500 token embeddings and the teacher ")
    assert error(other_head)[0].startswith(
        f"teachers: {other_head} was trained for another task kind: its head is token-class"
    )
    assert error(short)[0].startswith(f"texts may be 32 tokens long, but the model {short} has 16 positions")


@pytest.mark.parametrize("part", ["distill", "prune.recover"])
def test_margin_loss_needs_cross_encoder_and_negatives(part, errors_of, tiny_folder, tiny_task):
    ranks = tiny_folder("bert", tiny_task.model_copy(update={"kind": "ranking", "labels": (), "text": ("q", "a")}))
    rows = [*RETRIEVAL, "distill={soft_label: 1.0}", "prune.recover={soft_label: 1.0}"]
    (error,) = errors_of(*rows, f"{part}={{margin: 1.0}}")
    assert error.startswith(f"{part}: the loss margin needs a cross-encoder, and none is named")
    named = f"{part}={{margin: 1.0, cross_encoder: {ranks}}}"
    (error,) = errors_of(*rows, named)
    assert error.startswith(f"{part}: the loss margin compares an answer with other documents")
    assert errors_of(*rows, named, "task.hard_negatives=2") == []


@pytest.mark.parametrize("part", ["distill", "prune.recover"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "hidden_state: 1, layer_map: [[0, 5]]",
            "layer_map: [0, 5] names a layer that does not exist; the student has",
        ),
        (
            "hidden_state: 1, layer_map: [[1, 1]]",
            "layer_map: [1, 1] names a layer that does not exist; the student has",
        ),
        ("relation: {layer: 9}", "relation.layer: 9 does not exist; the teacher has layers 0 to 1"),
    ],
)
def test_layers_that_do_not_exist(part, settings, message, errors_of):
    (error,) = errors_of("student.layers=1", f"{part}={{{settings}}}")
    assert error.startswith(f"{part}: {message}")


def test_relation_heads_must_divide_both_widths(errors_of):
    (error,) = errors_of("distill={relation: {heads: 7}}")
    assert error.startswith("distill: relation.heads: 7 does not divide query widths")
    assert errors_of("distill={relation: {heads: 4}}") == []


@pytest.mark.parametrize("family", ["albert", "distilbert", "electra", "mobilebert", "roberta"])
def test_attention_widths_are_those_of_the_models(family, tiny_model):
    model = tiny_model(family)
    message = model.config.to_dict()
    with capture_parts(model, {layer: ["query"] for layer in range(len(layers_of(model)))}) as seen:
        forward(model, {"input_ids": torch.tensor([[1, 2, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)})
    shapes = [seen[layer]["query"].shape for layer in range(len(layers_of(model)))]
    assert attention_widths(message) == [shape[1] * shape[3] for shape in shapes]


def test_labels_of_further_teachers_are_compared_once_known(errors_of, tiny_model, tiny_folder, tiny_task, tmp_path):
    names = tiny_task.model_copy(update={"labels": ("low", "high")})
    other = tiny_folder(tiny_model("bert", ("low", "high"), vocab_size=141), names)
    shutil.copy(tmp_path / "teacher" / "tokenizer.json", other)
    override = f"distill={{soft_label: 1.0, teachers: [{other}]}}"
    assert errors_of(override) == []
    (error,) = errors_of(override, task=tiny_task)
    assert error.startswith(f"distill: teachers: {other} does not fit films: its labels are low, high; expected bad")


@pytest.mark.parametrize(("section", "layers"), [("finetune", 2), ("distill", 1), ("prune.recover", 1)])
def test_more_frozen_layers_than_there_are(section, layers, errors_of):
    assert errors_of(f"{section}.freeze={layers}") == []
    message = f"{section}: freeze: {layers + 1} exceeds the model's number of layers ({layers})."
    assert errors_of(f"{section}.freeze={layers + 1}") == [message]


def test_other_vocabulary_of_the_same_size(errors_of, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "teacher", other)
    content = json.loads((other / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(content))
    (error,) = errors_of(f"student={other}")
    assert error.startswith(f"student: {other} has another vocabulary")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["distill={soft_label: null}"],
            "distill: no loss uses the teacher: the student is trained on the labels alone",
        ),
        (["distill={hidden_state: 1, hard_label: 0}"], "distill: no loss trains the outputs"),
        (["student.heads=8"], "student: the student starts with random weights"),
        (["student.heads=8", "student.start=random"], None),
        (
            ["student.layers=2", "distill={hidden_state: 1, layer_map: [[0, 1], [1, 0]]}"],
            "distill: layer_map: [0, 1] and [1, 0] cross",
        ),
        (["gate.max_drop=1"], None),
        (["student=null"], "distill has no effect: the recipe has no student to distil"),
        ([], None),
    ],
)
def test_warnings_about_probably_unintended_settings(overrides, message, recipe_file, tmp_path, capsys):
    sets = [part for override in overrides for part in ("--set", override)]
    assert main(["run", str(recipe_file), "--runs", str(tmp_path / "runs"), "--dry-run", *sets]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    of_rows = ("that is also in train.", "that is also in select.", "too few to tell models apart.")
    warnings = [line for line in lines if not line.endswith(of_rows)]
    assert [line.startswith(f"warning: {message}") for line in warnings] == ([True] if message else [])


PLANNED = ("student.layers=9", "distill={soft_label: 0, hard_label: 0}", "distill.margin=1")


def outcome_of(command, recipe_file, runs, override, capsys, *flags):
    code = main([command, str(recipe_file), "--runs", str(runs), "--set", override, *flags])
    return code, capsys.readouterr()


@pytest.mark.parametrize("override", PLANNED)
def test_plan_refuses_what_a_run_would_refuse(override, recipe_file, tmp_path, capsys):
    code, planned = outcome_of("plan", recipe_file, tmp_path / "runs", override, capsys)
    assert code == 2
    assert "fine-tuning the teacher" in planned.out
    assert "estimate" not in planned.err
    refused = outcome_of("run", recipe_file, tmp_path / "runs", override, capsys, "--dry-run")
    assert refused == (2, (("", planned.err)))


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("key", ["teacher", "student", "distill.teachers", "prune.recover.augment.model"])
def test_absent_model_is_a_warning_of_plan_and_an_error_of_run(key, recipe_file, tmp_path, capsys):
    override = f"{key}=owner/none"
    code, planned = outcome_of("plan", recipe_file, tmp_path / "runs", override, capsys)
    assert code == 0
    index = f"{key}.0" if key.endswith("teachers") else key
    message = f"{index}: there is no folder owner/none, and owner/none@main is not on this machine"
    assert f"warning: a run cannot start on this machine: {message}" in planned.err
    run = outcome_of("run", recipe_file, tmp_path / "runs", override, capsys)
    assert run[0] == 2
    assert f"the run cannot start:\n  {message}" in run[1].err
    assert outcome_of("plan", recipe_file, tmp_path / "runs", override, capsys, "--calibrate") == run


def test_vocabulary_that_cannot_be_pruned(errors_of):
    assert errors_of("prune={vocabulary: seen}") == []
    (error,) = errors_of("prune.vocabulary={keep: 9000}")
    assert error.startswith("prune: vocabulary: 9,000 pieces cannot be kept: the tokenizer has 141, of which 141")
    assert errors_of("teacher=albert-base", "prune={vocabulary: seen}", due=("prune",)) == []
    assert errors_of("student.vocabulary=seen") == []
    (error,) = errors_of("student.vocabulary.keep=9000")
    assert error.startswith("student: vocabulary: 9,000 pieces cannot be kept: the tokenizer has 141, of which 141")


def test_more_pieces_than_the_students_vocabulary_has(errors_of, tmp_path):
    path = tmp_path / "teacher" / "tokenizer.json"
    content = json.loads(path.read_text())
    words = [f"word{number}" for number in range(20)]
    content["model"]["vocab"] |= {word: 141 + index for index, word in enumerate(words)}
    path.write_text(json.dumps(content))
    assert errors_of("student.vocabulary={keep: 150}", "prune.vocabulary={keep: 150}") == []
    (error,) = errors_of("student.vocabulary={keep: 150}", "prune.vocabulary={keep: 155}")
    assert error.startswith("prune: vocabulary: 155 pieces cannot be kept: student.vocabulary leaves 150.")


def test_checkpoint_with_a_part_of_the_teachers_vocabulary(errors_of, tmp_path):
    part, content = tmp_path / "part", json.loads((tmp_path / "teacher" / "tokenizer.json").read_text())
    shutil.copytree(tmp_path / "teacher", part)
    content["model"]["vocab"].popitem()
    (part / "tokenizer.json").write_text(json.dumps(content))
    assert errors_of(f"student={part}") == []


def test_vocabulary_of_a_tokenizer_without_tokenizer_json(errors_of, tmp_path):
    folder = tmp_path / "other"
    write_tiny_model(folder, "bert")
    (folder / "tokenizer.json").unlink()
    (error,) = errors_of(f"teacher={folder}", "prune={vocabulary: seen}")
    assert error.startswith(f"prune: {folder} has no tokenizer: expected one of tokenizer.json")
