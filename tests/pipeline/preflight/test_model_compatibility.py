"""What a model cannot do is told before anything is trained."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from compress import model_sources
from compress.cli import main
from compress.errors import ModelError, UsageError
from compress.model_info import VariantInfo, read_info, write_info
from compress.models.encoder_parts import layers_of
from compress.models.forward_hooks import capture
from compress.models.load_save import load
from compress.models.tiny import write_tiny_model
from compress.pipeline.preflight import model_availability
from compress.pipeline.preflight.model_availability import absent_models
from compress.pipeline.preflight.model_compatibility import attention_widths, compatibility_errors
from compress.pipeline.run import Options, prepare
from compress.pipeline.strip_paths import recipe_without_paths
from compress.train.objective import forward

EVERYTHING = ("data", "finetune", "distill", "prune")


@pytest.fixture
def faults(recipe_file, tmp_path):
    """The faults of the tiny recipe with these overrides."""

    def find(*overrides, due=EVERYTHING, task=None):
        plan = prepare(recipe_file, overrides, Options(runs=tmp_path / "runs"))
        return [*absent_models(plan.recipe, due), *compatibility_errors(plan.recipe, task=task)]

    return find


@pytest.fixture
def no_hub(monkeypatch):
    monkeypatch.setattr(model_availability, "hub_state", lambda: "not reachable")
    for module in (model_availability, model_sources):
        monkeypatch.setattr(module, "cached_checkpoint", lambda *_: None)


def test_the_tiny_recipe_has_none(faults):
    assert faults() == []


def test_more_layers_than_the_teacher_has(faults):
    assert faults("student.layers=9") == [
        "student: a student of 9 layers cannot be taken from 2 layers; the most is 2."
    ]


def test_texts_that_would_be_alone_in_their_processes(faults, monkeypatch):
    alone = ("prune.recover.losses.similarity=1", "prune.recover.batch_size=16")
    assert faults(*alone) == []
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("RANK", "0")
    (fault,) = faults(*alone)
    assert fault.startswith("prune.recover: similarity: compares the texts of a batch")
    assert "(batch_size: 32 or more" in fault


def test_a_family_that_cannot_be_pruned_nor_observed(faults, tmp_path):
    write_tiny_model(tmp_path / "modern", "modernbert")
    pruned, observed = faults(f"teacher={tmp_path / 'modern'}")
    assert pruned.startswith("prune: modernbert cannot be pruned")
    assert observed.startswith("distill: modernbert computes query together with others")
    assert faults(f"teacher={tmp_path / 'modern'}", "prune=null", "distill={soft_label: 1.0}") == []


def test_a_student_of_another_family_can_be_pruned(faults, tmp_path):
    write_tiny_model(tmp_path / "albert", "albert")
    assert faults(f"teacher={tmp_path / 'albert'}", f"student={tmp_path / 'teacher'}") == []


def test_a_family_nobody_knows(faults, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    assert "model family 'gpt2' is not supported" in faults(f"teacher={folder}")[0]
    (folder / "config.json").write_text("{")
    assert "config.json cannot be read" in faults(f"teacher={folder}")[0]
    (folder / "config.json").write_text("{}")
    assert "names no model_type" in faults(f"teacher={folder}")[0]


@pytest.mark.usefixtures("no_hub")
def test_a_hub_student_is_missed_before_the_teacher_is_trained(faults):
    (fault,) = faults("student=bert-tiny")
    assert fault.startswith("student: there is no folder google/bert_uncased_L-2_H-128_A-2, and google/bert_uncased_L-")
    assert "_A-2@main is not on this machine; model hub: not reachable" in fault
    assert faults("student=bert-tiny", due=("prune",)) == []


@pytest.mark.usefixtures("no_hub")
def test_a_card_tells_the_family_of_a_teacher_that_stands(faults):
    (fault,) = faults("teacher=albert-base", due=("prune",))
    assert fault.startswith("prune: albert cannot be pruned")


def test_the_command_refuses_before_the_first_step(recipe_file: Path, tmp_path: Path, capsys):
    command = ["run", str(recipe_file), "--runs", str(tmp_path / "runs"), "--set", "student.layers=9"]
    assert main(command) == 2
    assert "the run cannot start:\n  student: a student of 9 layers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("student.hidden=4096", "would be wider"),
        ("student.factors=4096", "4096 numbers per token are more than the student's hidden size"),
        ("student.ffn=1", "the teacher's weights cannot start a student of"),
    ],
)
def test_shapes_that_cannot_be_had(override: str, told: str, faults):
    start = "teacher" if "ffn" in override else "slice"
    (fault,) = faults(override, f"student.start={start}")
    assert fault.startswith("student: ")
    assert told in fault


@pytest.mark.parametrize("layers", ["0", "-1", "2.5"])
def test_layers_that_cannot_be_counted(layers: str, recipe_file: Path, capsys):
    assert main(["plan", str(recipe_file), "--set", f"student.layers={layers}"]) == 2
    assert f"student.layers: expected a number of layers or a share between 0 and 1, got {layers}" in (
        capsys.readouterr().err
    )


def test_a_place_for_runs_that_cannot_be(recipe_file: Path, tmp_path: Path, capsys):
    assert main(["run", str(recipe_file), "--runs", str(tmp_path / "train.csv")]) == 2
    assert "--runs" in capsys.readouterr().err


def test_a_cross_encoder_that_is_none_or_is_asked_for_nothing(faults, tmp_path):
    (fault,) = faults("distill={soft_label: 1.0, margin: 1.0}")
    assert fault.startswith("distill: the loss margin compares a query's documents, and classification has none")
    (fault,) = faults(f"distill={{soft_label: 1.0, cross_encoder: {tmp_path / 'teacher'}}}")
    assert fault.startswith("distill: cross_encoder is named, and no loss asks it")


def test_a_cross_encoder_counts_by_its_contents(recipe_file: Path, tmp_path: Path):
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


def test_what_is_published_names_no_folder_of_another_model(recipe_file: Path, tmp_path: Path):
    folder = tmp_path / "teacher"
    override = f"distill={{soft_label: 1.0, cross_encoder: {folder}, teachers: [{folder}]}}"
    plan = prepare(recipe_file, [override], Options(runs=tmp_path / "runs"))
    told = recipe_without_paths(plan.recipe)
    assert told["distill"]["teachers"][0]["source"] == "teacher"
    assert told["distill"]["cross_encoder"] == "teacher"
    assert str(tmp_path) not in str({**told, "measure": None})


def test_an_exported_winner_can_neither_teach_nor_learn(faults, tiny_folder):
    folder = tiny_folder("bert")
    told = VariantInfo(name="onnx-int8", format="onnx", precision="int8", runtime="onnxruntime")
    write_info(folder, read_info(folder).model_copy(update={"variant": told}))
    (folder / "model.safetensors").unlink()
    for part in ("teacher", "student"):
        (fault,) = faults(f"{part}={folder}", "distill={soft_label: 1.0}")
        assert fault.startswith(
            f"{part}: {folder} holds an exported model (onnx-int8): it can be run, but not loaded or"
        )
        assert "lock.json" in fault
    with pytest.raises(ModelError, match="holds an exported model"):
        load(folder)


RETRIEVAL = ("task.kind=retrieval", "task.text=text", "task.label=label")


def test_what_would_show_only_after_hours_of_training(faults, tmp_path):
    (fault,) = faults("task.max_length=600")
    assert fault.startswith(
        f"task: texts may be 600 pieces long, but the model {tmp_path / 'teacher'} has 514 positions"
    )
    (fault,) = faults("student.embedding=16")
    assert fault.startswith("student: student.embedding: 16 asks for the width of embeddings, and classification has")
    rows = [*RETRIEVAL, "prune=null", "distill={soft_label: 1.0}"]
    (fault,) = faults(*rows, "student.embedding=64")
    assert fault.startswith("student: the student's embeddings would be 64 wide, and those of its teacher have 32")
    assert faults(*rows, "student.embedding=32") == []


def test_a_phase_without_any_loss(faults):
    (fault,) = faults("distill={phases: [{share: 0.5, soft_label: 1.0}, {share: 0.5}]}")
    assert fault.startswith("distill: in phase 2 every distillation loss weighs zero")


@pytest.mark.parametrize("part", ["distill", "prune.recover"])
def test_further_teachers_that_cannot_teach_beside_the_recipe_s_own(
    part, faults, tiny_model, tiny_folder, tiny_task, tmp_path
):
    def fault(*folders):
        named = ", ".join(str(folder) for folder in folders)
        return [told.removeprefix(f"{part}: ") for told in faults(f"{part}={{soft_label: 1.0, teachers: [{named}]}}")]

    tags = tiny_task.model_copy(update={"kind": "token_classification"})
    other_head = tiny_folder(tiny_model("bert", head="ForTokenClassification", vocab_size=141), tags)
    good, many = tiny_folder(tiny_model("bert", vocab_size=141)), tiny_folder(tiny_model("bert", vocab_size=500))
    short = tiny_folder(tiny_model("bert", vocab_size=141, max_position_embeddings=16))
    pieces = tmp_path / "teacher" / "tokenizer.json"
    for folder in (good, many, other_head, short):
        shutil.copy(pieces, folder)
    assert fault(good) == []
    assert fault(good, many)[0].startswith(f"teachers: {many} has word vectors for 500 pieces and the teacher for")
    assert fault(other_head)[0].startswith(f"teachers: {other_head} answers another question: its head is token-class")
    assert fault(short)[0].startswith(f"texts may be 32 pieces long, but the model {short} has 16 positions")


@pytest.mark.parametrize("part", ["distill", "prune.recover"])
def test_margins_that_nobody_tells_or_nothing_has(part, faults, tiny_folder, tiny_task):
    ranks = tiny_folder("bert", tiny_task.model_copy(update={"kind": "ranking", "labels": (), "text": ("q", "a")}))
    rows = [*RETRIEVAL, "distill={soft_label: 1.0}", "prune.recover={soft_label: 1.0}"]
    (fault,) = faults(*rows, f"{part}={{margin: 1.0}}")
    assert fault.startswith(f"{part}: the loss margin follows a cross-encoder, and none is named")
    named = f"{part}={{margin: 1.0, cross_encoder: {ranks}}}"
    (fault,) = faults(*rows, named)
    assert fault.startswith(f"{part}: the loss margin compares an answer with documents that are none")
    assert faults(*rows, named, "task.hard_negatives=2") == []


@pytest.mark.parametrize("part", ["distill", "prune.recover"])
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("hidden_state: 1, layer_map: [[0, 5]]", "layer_map: [0, 5] names a layer that is not there; the student has"),
        ("hidden_state: 1, layer_map: [[1, 1]]", "layer_map: [1, 1] names a layer that is not there; the student has"),
        ("relation: {layer: 9}", "relation.layer: 9 is not there; the teacher has layers 0 to 1"),
    ],
)
def test_layers_that_are_not_there_are_told_before_anything_is_trained(part, settings, told, faults):
    (fault,) = faults("student.layers=1", f"{part}={{{settings}}}")
    assert fault.startswith(f"{part}: {told}")


def test_relation_heads_that_do_not_cut_both_widths(faults):
    (fault,) = faults("distill={relation: {heads: 7}}")
    assert fault.startswith("distill: relation.heads: 7 do not cut queries of")
    assert faults("distill={relation: {heads: 4}}") == []


@pytest.mark.parametrize("family", ["albert", "distilbert", "electra", "mobilebert", "roberta"])
def test_depths_and_widths_of_every_family_are_those_of_its_models(family, tiny_model):
    model = tiny_model(family)
    told = model.config.to_dict()
    with capture(model, range(len(layers_of(model))), ["query"]) as seen:
        forward(model, {"input_ids": torch.tensor([[1, 2, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)})
    shapes = [seen[layer]["query"].shape for layer in range(len(layers_of(model)))]
    assert attention_widths(told) == [shape[1] * shape[3] for shape in shapes]


def test_labels_of_further_teachers_are_compared_once_they_are_known(
    faults, tiny_model, tiny_folder, tiny_task, tmp_path
):
    names = tiny_task.model_copy(update={"labels": ("low", "high")})
    other = tiny_folder(tiny_model("bert", ("low", "high"), vocab_size=141), names)
    shutil.copy(tmp_path / "teacher" / "tokenizer.json", other)
    override = f"distill={{soft_label: 1.0, teachers: [{other}]}}"
    assert faults(override) == []
    (fault,) = faults(override, task=tiny_task)
    assert fault.startswith(
        f"distill: teachers: {other} does not answer films: its answers are low, high; expected bad"
    )


def test_other_pieces_under_the_same_number_of_them(faults, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "teacher", other)
    content = json.loads((other / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(content))
    (fault,) = faults(f"student={other}")
    assert fault.startswith(f"student: {other} has another vocabulary")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["distill={soft_label: null}"], "distill: no loss asks the teacher: the student learns from the labels alone"),
        (["distill={hidden_state: 1, hard_label: 0}"], "distill: no loss teaches answers"),
        (["student.heads=8"], "student: the student starts from random weights"),
        (["student.heads=8", "student.start=random"], None),
        (
            ["student.layers=2", "distill={hidden_state: 1, layer_map: [[0, 1], [1, 0]]}"],
            "distill: layer_map: [0, 1] and [1, 0] cross",
        ),
        (["student=null"], "distill is not read: there is no student that would be distilled"),
        ([], None),
    ],
)
def test_what_nobody_may_have_wished_is_told_before_it_runs(overrides, told, recipe_file, tmp_path, capsys):
    sets = [part for override in overrides for part in ("--set", override)]
    assert main(["run", str(recipe_file), "--runs", str(tmp_path / "runs"), "--dry-run", *sets]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert [line.startswith(f"warning: {told}") for line in warnings] == ([True] if told else [])


PLANNED = ("student.layers=9", "distill={soft_label: 0, hard_label: 0}", "distill.margin=1")


def told_by(command, recipe_file, runs, override, capsys, *flags):
    code = main([command, str(recipe_file), "--runs", str(runs), "--set", override, *flags])
    return code, capsys.readouterr()


@pytest.mark.parametrize("override", PLANNED)
def test_a_plan_ends_with_what_a_run_would_refuse(override, recipe_file, tmp_path, capsys):
    code, planned = told_by("plan", recipe_file, tmp_path / "runs", override, capsys)
    assert code == 2
    assert "finetune" in planned.out
    assert "estimate" not in planned.err
    refused = told_by("run", recipe_file, tmp_path / "runs", override, capsys, "--dry-run")
    assert refused == (2, (("", planned.err)))


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("key", ["teacher", "student", "distill.teachers", "prune.recover.augment.model"])
def test_a_model_that_is_not_here_is_in_the_way_of_this_machine_alone(key, recipe_file, tmp_path, capsys):
    override = f"{key}=owner/none"
    code, planned = told_by("plan", recipe_file, tmp_path / "runs", override, capsys)
    assert code == 0
    place = f"{key}.0" if key.endswith("teachers") else key
    told = f"{place}: there is no folder owner/none, and owner/none@main is not on this machine"
    assert f"warning: a run cannot start on this machine: {told}" in planned.err
    run = told_by("run", recipe_file, tmp_path / "runs", override, capsys)
    assert run[0] == 2
    assert f"the run cannot start:\n  {told}" in run[1].err
    assert told_by("plan", recipe_file, tmp_path / "runs", override, capsys, "--calibrate") == run
