"""Recipes from text: short forms, named tasks, overrides, and all problems at once with their lines."""

import pytest

from compress.errors import Problem, RecipeError
from compress.recipe.load import dump_recipe, load_recipe, parse_recipe
from compress.recipe.loss_schema import Attention, HiddenState, Losses, SoftLabel
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Teacher
from compress.recipe.student_schema import Student
from compress.tasks import KINDS
from compress.tasks.presets import NAMED_TASKS

NAMES = {
    "task kinds": KINDS,
    "losses": ("soft_label", "hidden_state", "attention"),
    "quantizers": ("int8",),
    "formats": ("onnx",),
    "trackers": ("tensorboard", "wandb"),
    "perturbations": ("typos", "truncation"),
    "named tasks": NAMED_TASKS,
}
MINIMAL = "task: sst2\nteacher: minilm-l6\n"


def parse(text, *overrides, **settings):
    return parse_recipe(text, "r.yaml", overrides, NAMES, **settings)


def problems_of(text, *overrides, **settings):
    with pytest.raises(RecipeError) as error:
        parse(text, *overrides, **settings)
    assert str(error.value).startswith("r.yaml: ")
    assert error.value.exit_code == 2
    assert error.value.problems
    return [str(problem) for problem in error.value.problems]


def test_recipe_of_the_design_page_parses():
    recipe = parse(
        """
version: 1                     # default
seed: 0                        # default
task: sst2                     # a name from the task table, or {kind, data, text, label, metric}
teacher: minilm-l6             # a card, a local folder, or a hub id with a revision
finetune: {epochs: 3}
student: half-depth            # a card, a shape, a folder
distill: {soft_label: 1.0, hidden_state: 1.0, attention: 1.0}
prune: {heads: 0.25, ffn: 0.5}
quantize: int8
gate: {max_drop: 0.01}
targets: [cpu]
export: [onnx]
publish: zoo/
"""
    )
    assert recipe.task.labels == ("negative", "positive")
    assert recipe.student == Student(source="half-depth")
    assert recipe.distill.losses == Losses(soft_label=SoftLabel(), hidden_state=HiddenState(), attention=Attention())
    assert recipe.publish.to == "zoo/"


def test_single_item_list_needs_no_brackets():
    recipe = parse(
        "task: {kind: classification, text: sentence, data: {train: a}, aliases: {label: Quality}}\n"
        "teacher: m\ntargets: {device: cpu, threads: 2}\nexport: onnx"
    )
    assert recipe.task.text == ("sentence",)
    assert recipe.task.aliases == {"label": ("Quality",)}
    assert recipe.targets == (Target(device="cpu", threads=2),)
    assert parse(MINIMAL + "targets: cuda").targets[0].device == "cuda"


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL,
        MINIMAL + "name: no\n",
        "task: {kind: classification, labels: ['yes', 'no', '1e3', '5', '~', 'true', ''], data: {train: 'a b.tsv'}}\n"
        "teacher: '123'\nfinetune: false\nstudent: {layers: [1, 3]}\ndistill: {layer_map: [[0, 1]], epochs: 0.5}\n"
        "prune: {to: {parameters: 0.3}, recover: false}\nquantize: int8\npublish: zoo/\ntargets: [cpu, cuda]\n",
        "task: {name: stsb, data: {train: [a.tsv, b.tsv], test: ü.tsv, header: {test: [a, '...']}}}\nteacher: m\n",
    ],
)
def test_long_form_parses_as_the_same_recipe(text):
    recipe = parse(text)
    long = dump_recipe(recipe)
    assert parse(long) == recipe
    assert dump_recipe(parse(long)) == long


def test_long_form_quotes_for_yaml_1_1():
    import yaml

    text = "task: {kind: classification, labels: ['on', '1e3', '2026-01-01'], data: {train: a}}\nteacher: m\n"
    assert yaml.safe_load(dump_recipe(parse(text)))["task"]["labels"] == ["on", "1e3", "2026-01-01"]


def test_scalars_follow_yaml_1_2():
    recipe = parse(
        "task: {kind: classification, labels: [yes, no, off], data: {train: a}}\nteacher: m\n"
        "finetune: {learning_rate: 5e-5}"
    )
    assert recipe.task.labels == ("yes", "no", "off")
    assert recipe.finetune.learning_rate == 5e-5


# --- named tasks


def test_files_replace_the_hub_source_only():
    task = parse(MINIMAL, "task.data.train=a.tsv", "task.data.test=b.tsv", "task.max_length=64").task
    assert (task.data.hub, task.data.train, task.data.test) == (None, "a.tsv", "b.tsv")
    assert (task.text, task.labels, task.metric, task.max_length) == (
        ("sentence",), ("negative", "positive"), "accuracy", 64,
    )  # fmt: skip


def test_other_data_settings_keep_the_hub_source():
    task = parse(MINIMAL, "task.data.limit=10").task
    assert (task.data.hub, task.data.train, task.data.limit) == ("nyu-mll/glue/sst2", "train", 10)


def test_aliases_extend_those_of_the_named_task():
    task = parse("task: {name: mrpc, aliases: {label: [is_same]}}\nteacher: m").task
    assert task.aliases == {"sentence1": ("#1 String",), "sentence2": ("#2 String",), "label": ("is_same",)}


def test_unknown_task_names_nearest_and_rest_is_still_checked():
    result = problems_of("task: sst3\nteacher: m\nseed: -1\n")
    assert result[0].startswith("line 1, task: no task is called 'sst3'; did you mean sst2?")
    assert result[1:] == ["line 3, seed: should be greater than or equal to 0, got -1"]


def test_own_task_may_have_any_name():
    assert parse("task: {name: mine, kind: regression, data: {train: a}}\nteacher: m").task.name == "mine"


# --- defaults of a kind

KIND_DEFAULTS = {"question_answering": {"text": ["question", "context"], "label": "answers", "max_length": 384}}


def of_kind(task, *overrides, **settings):
    kinds = {"task kinds": (*KINDS, "question_answering"), "defaults of kinds": KIND_DEFAULTS}
    text = f"task: {task}\nteacher: m\n"
    return parse_recipe(text, "r.yaml", overrides, {**NAMES, **kinds}, **settings)


def test_kind_provides_defaults():
    task = of_kind("{kind: question_answering, data: {train: a}}").task
    assert (task.text, task.label, task.max_length) == (("question", "context"), "answers", 384)
    task = of_kind("{kind: question_answering, text: [q, c], max_length: 64, data: {train: a}}").task
    assert (task.text, task.label, task.max_length) == (("q", "c"), "answers", 64)


def test_kind_without_defaults_has_those_of_the_schema():
    assert of_kind("{kind: classification, data: {train: a}}").task.text == ("text",)


def test_named_task_overrides_defaults_of_its_kind():
    named = {"trivia": {"name": "trivia", "kind": "question_answering", "label": "found", "data": {"hub": "a/b"}}}
    names = {"task kinds": ("question_answering",), "named tasks": named, "defaults of kinds": KIND_DEFAULTS}
    task = parse_recipe("task: trivia\nteacher: m\n", "r.yaml", (), names).task
    assert (task.label, task.max_length) == ("found", 384)


def test_the_name_of_a_recipe_is_not_that_of_its_task():
    for recipe in (
        of_kind("{kind: regression, data: {train: a}}", "name=films"),
        of_kind("{kind: regression, data: {train: a}}", default_name="films"),
    ):
        assert (recipe.task.name, recipe.task_title) == (None, "films")
    recipe = of_kind("{kind: regression, name: mine, data: {train: a}}", default_name="films")
    assert (recipe.task.name, recipe.task_title) == ("mine", "mine")


def test_invalid_kind_is_reported():
    with pytest.raises(RecipeError, match=r"task\.kind: expected text, got a list"):
        of_kind("{kind: [a], data: {train: a}}")
    with pytest.raises(RecipeError, match="no task kind is called 'qa'"):
        of_kind("{kind: qa, data: {train: a}}")


def test_corpus_is_a_path(monkeypatch):
    monkeypatch.setenv("DATA", "/d")
    data = of_kind("{kind: regression, data: {train: a, corpus: $DATA/all.jsonl}}").task.data
    assert data.corpus == "/d/all.jsonl"


# --- overrides


@pytest.mark.parametrize(
    ("override", "check"),
    [
        ("finetune.epochs=2", lambda recipe: recipe.finetune.epochs == 2),
        ("prune.heads=0.25", lambda recipe: recipe.prune.heads == 0.25),
        ("prune={vocabulary: seen}", lambda recipe: recipe.prune.vocabulary == "seen"),
        ("prune.vocabulary.keep=8000", lambda recipe: recipe.prune.vocabulary.keep == 8000),
        ("student={layers: 3, vocabulary: {min_count: 2}}", lambda recipe: recipe.student.vocabulary.min_count == 2),
        ("quantize=int8", lambda recipe: recipe.quantize.methods == ("int8",)),
        (
            "teacher.revision=abc",
            lambda recipe: recipe.teacher == Teacher(source="minilm-l6", revision="abc"),
        ),
        ("targets=[{device: cpu, threads: 2}]", lambda recipe: recipe.targets[0] == Target(device="cpu", threads=2)),
        ("targets=[cpu, cuda]", lambda recipe: len(recipe.targets) == 2),
        ("finetune=false", lambda recipe: recipe.finetune is False),
        ("name=a=b", lambda recipe: False),
        ("distill.cache.disk=1.5GiB", lambda recipe: recipe.distill.cache.disk == 3 * 2**29),
        ("distill.cache=1.5GiB", lambda recipe: recipe.distill.cache.disk == 3 * 2**29),
        ("distill.teachers=[a/b]", lambda recipe: recipe.distill.teachers[0].source == "a/b"),
        (
            "distill.attention.form=scores",
            lambda recipe: recipe.distill.losses == Losses(attention=Attention(form="scores")),
        ),
        ("distill.soft_label=2", lambda recipe: recipe.distill.losses == Losses(soft_label=SoftLabel(weight=2.0))),
        ("track=null", lambda recipe: recipe.track is None),
        ("task.data.header={test: [a, b]}", lambda recipe: recipe.task.data.header == {"test": ("a", "b")}),
    ],
)
def test_overrides(override, check):
    if override == "name=a=b":
        assert "name: may hold up to 100 letters" in problems_of(MINIMAL, override)[0]
    else:
        assert check(parse(MINIMAL, override))


def test_overrides_expand_sections_and_single_items():
    text = MINIMAL + "finetune: false\ntargets: cpu\n"
    recipe = parse(text, "finetune.epochs=2", "targets.0.batch=8")
    assert recipe.finetune.epochs == 2
    assert recipe.targets[0].batch == 8


def test_last_override_wins():
    assert parse(MINIMAL, "seed=1", "seed=2").seed == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "'seed' is not an override; expected KEY=VALUE"),
        ("=3", "is not an override"),
        ("seed=", "'seed=' has no value; seed=null removes a key"),
        ("a..b=3", "is not an override"),
        (
            "distill={epochs: 1, epochs: 4}",
            "'distill={epochs: 1, epochs: 4}': line 1, epochs: is given twice (first in line 1)",
        ),
        ("seed=[", "'seed=[': line 1, recipe: not YAML"),
        ("targets.1.threads=2", "'targets' has 1 items, counted from 0; there is no targets.1"),
        ("targets.x.threads=2", "'targets' has 1 items, counted from 0; there is no targets.x"),
        ("distill.layer_map.0=[0, 1]", "'distill.layer_map' has 0 items"),
        ("teacher=null", "teacher: is missing"),
        ("nothing=null", "nothing: unknown key"),
        ("teacher.source.x=2", "'teacher.source' is 'minilm-l6' and has no keys below it"),
        ("sead=3", "sead: unknown key; did you mean seed?"),
        ("gate.drop=3", "gate.drop: unknown key; did you mean max_drop?"),
        ("budget.siez=5MB", "budget.siez: unknown key; did you mean size?"),
        ("seed=x", "seed: expected a whole number, got 'x' (given on the command line)"),
    ],
)
def test_invalid_overrides(override, message):
    assert message in problems_of(MINIMAL + "targets: [cpu]\n", override)[0]


# --- problems


def test_all_problems_at_once_in_order_with_lines():
    result = problems_of(
        "task: sst2\nteacher: m\nfinetune:\n  epocs: 3\n  batch_size: 0\nprune: {heads: 1.5}\nquantise: int8\n"
    )
    assert [line.partition(":")[0] for line in result] == [
        "line 4, finetune.epocs",
        "line 5, finetune.batch_size",
        "line 6, prune.heads",
        "line 7, quantise",
    ]
    assert "did you mean epochs?" in result[0]
    assert "did you mean quantize?" in result[3]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("finetune: {epochs: true}", "finetune.epochs: expected a number, a section of keys or auto, got true"),
        ("finetune: {batch_size: '8'}", "finetune.batch_size: expected a whole number or auto, got '8'"),
        ("finetune: {batch_size: 1.5}", "finetune.batch_size: expected a whole number or auto, got 1.5"),
        ("finetune: {decay: liner}", "expected linear, cosine or constant, got 'liner'; did you mean linear?"),
        ("finetune: {freeze: x}", "finetune.freeze: expected a whole number or embeddings, got 'x'"),
        ("finetune:", "finetune: expected a section of keys or false, got nothing"),
        ("finetune: 3", "finetune: expected a section of keys or false, got 3"),
        ("gate: [1]", "gate: expected a section of keys, got a list"),
        ("gate: {strict: yes}", "gate.strict: expected true or false, got 'yes'"),
        ("gate: {max_drop: .inf}", "gate.max_drop: expected a number, got '.inf'"),
        ("gate: {max_drop: .nan}", "gate.max_drop: expected a number, got '.nan'"),
        ("gate: {max_drop: 1e999}", "gate.max_drop: should be a finite number"),
        ("student: {}", "student: name a student card or folder, or give its number of layers"),
        ("student: {layers: abc}", "student.layers: expected a number or a list, got 'abc'"),
        ("targets: []", "targets: expected a list with at least 1 item, got an empty list"),
        ("targets: [cpx]", "targets.0: expected cpu or cuda, got 'cpx'; did you mean cpu?"),
        ("targets: [gpu]", "targets.0: expected cpu or cuda, got 'gpu'; did you mean cuda?"),
        ("targets: [{threads: 2}]", "targets.0.device: is missing"),
        ("targets: [{device: cpu, length: x}]", "targets.0.length: expected a whole number or data, got 'x'"),
        ("targets: [cpu, cpu]", "targets: two of cpu, cpu are called the same; give them names"),
        ("export: [onx]", "export.0: no format is called 'onx'; did you mean onnx?"),
        ("export: [onnx, {format: onnx, compete: false}]", "export: onnx is named twice"),
        ("export: [{format: onnx, compete: 1}]", "export.0.compete: expected true or false, got 1"),
        ("track: wand", "track: no tracker is called 'wand'; did you mean wandb?"),
        ("distill: {soft_labl: 1}", "distill.soft_labl: unknown key; did you mean soft_label?"),
        ("distill: {attention: -1}", "distill.attention: should be greater than or equal to 0, got -1"),
        ("distill: {attention: false}", "distill.attention: expected a section of keys, got false"),
        ("distill: {attention: {wieght: 1}}", "distill.attention.wieght: unknown key; did you mean weight?"),
        (
            "distill: {attention: {weight: -1}}",
            "distill.attention.weight: should be greater than or equal to 0, got -1",
        ),
        (
            "distill: {attention: {form: kll}}",
            "distill.attention.form: expected kl or scores, got 'kll'; did you mean kl?",
        ),
        (
            "distill: {layer_map: []}",
            "distill.layer_map: expected uniform, last, first, measured or a list",
        ),
        ("distill: {layer_map: [[-1, 1]]}", "distill.layer_map.0.0: should be greater than or equal to 0, got -1"),
        (
            "distill: {layer_map: [[0, 1], [1, 2], [0, 1]]}",
            "distill.layer_map: names the pair [0, 1] twice, which would count twice",
        ),
        ("distill: {losses: 1, soft_label: 1}", "losses: expected a section with the names of losses as keys, got 1"),
        ("distill: {losses: [soft_label], soft_label: 1}", "losses: expected a section with the names of losses"),
        ("distill: {phases: [{share: 1, losses: 2, soft_label: 1}]}", "losses: expected a section with the names of"),
        (
            "distill: {phases: [{share: 0.5, attention: 1}]}",
            "distill.phases: the shares of all phases should add up to 1",
        ),
        ("distill: {phases: [{share: 1, attention: 1}], soft_label: 1}", "phases have losses of their own"),
        (
            "distill: {phases: [{share: 1, attention: 1}], soft_label: 1, hard_label: 0}",
            "so losses and hard_label cannot be given outside them. Move them into the phases, or leave phases out "
            "(--set of this section's losses=null and hard_label=null)",
        ),
        ("distill: {soft_label: {form: mse, temperature: 9}}", "distill.soft_label: form: mse compares logits as they"),
        (
            "distill: {soft_label: {others: 2}}",
            "distill.soft_label: target and others are parts of form: decoupled; kl",
        ),
        ("distill: {contrast: 1, batch_size: 1}", "contrast: compares the texts of a batch, and batch_size is 1"),
        ("distill: {cache: 2 parsecs}", "distill.cache: expected"),
        ("distill: {cache: {disk: 2 parsecs}}", "distill.cache.disk: expected"),
        ("distill: {cache: -1}", "distill.cache: should be greater than or equal to 0, got -1"),
        ("distill: {losses: {attention: 1}, attention: 2}", "distill: attention: is given both in losses and directly"),
        ("distill: {attention: {weight: {start: 1, end: 0, to: 0}}}", "distill.attention.weight.to: unknown key"),
        ("distill: {attention: {start: 1}}", "distill.attention.start: unknown key (known: form, weight)"),
        ("distill: {hard_label: {start: 1, end: 0}}", "distill.hard_label: expected a number, got a section of keys"),
        ("distill: {augment: {copies: 1}}", "distill.augment.model: is missing"),
        ("distill: {losses: {foo: 1}}", "distill.losses.foo: unknown key"),
        ("prune: {}", "prune: say how much"),
        ("prune: {heads: 0.5, cuts: 2, recover: false}", "prune: cuts: without a recovery between them"),
        ("prune: {heads: 0.5, cuts: 0}", "prune.cuts: "),
        (
            "prune: {heads: 0.5, recover: {epochs: x}}",
            "prune.recover.epochs: expected a number, a section of keys or auto, got 'x'",
        ),
        (
            "quantize: {training: {teachers: [other], layer_map: last}}",
            "quantize.training: teachers, layer_map: the model learns from itself, unquantized, layer by layer",
        ),
        ("quantize: {training: {epochs: x}}", "quantize.training.epochs: expected a number, a section of keys or auto"),
        ("distill: {losses: x}", "distill.losses: expected a section of keys, got 'x'"),
        ("distill: {losses: 3}", "distill.losses: expected a section of keys, got 3"),
        ("student: {layers: 1e308}", "student.layers: expected a number of layers up to 1000 or a share below 1"),
        ("student: {layers: []}", "student.layers: expected a number or a list with at least 1 item, got an empty"),
        ("finetune: {epochs: {least: 3, most: 2}}", "finetune.epochs: least (3) should not be larger than most (2)"),
        ("finetune: {minutes: 0}", "finetune.minutes: should be greater than 0, got 0"),
        (
            "distill: {epochs: {least: 1, most: 2}, soft_label: {weight: {start: 1, end: 0}}}",
            "distill: phases, and weights from start to end, are shares of all updates (epochs: give a number)",
        ),
        (
            "distill: {minutes: 5, phases: [{share: 0.5, hidden_state: 1}, {share: 0.5, soft_label: 1}]}",
            "distill: phases, and weights from start to end, are shares of all updates (minutes: a limit of time may",
        ),
        ("finetune: {epochs: 1e308}", "finetune.epochs: should be less than or equal to 10000, got 1e+308"),
        ("finetune: {learning_rate: 1e308}", "finetune.learning_rate: should be less than or equal to 10"),
        (f"finetune: {{batch_size: {10**30}}}", "finetune.batch_size: should be less than or equal to 65536, got 1000"),
        (f"finetune: {{restarts: {10**30}}}", "finetune.restarts: should be less than or equal to 1000, got 1000"),
        (f"measure: {{bootstrap: {10**30}}}", "measure.bootstrap: should be less than or equal to 100000, got 1000"),
        (f"targets: [{{device: cpu, threads: {10**30}}}]", "targets.0.threads: should be less than or equal to 1024"),
        (f"targets: [{{device: cpu, batch: {10**30}}}]", "targets.0.batch: should be less than or equal to 65536"),
        (f"targets: [{{device: cpu, length: {10**30}}}]", "targets.0.length: should be less than or equal to 65536"),
        (f"student: {'x' * 300}", "is no file name: the name of a file or folder has at most 255 bytes"),
        (f"publish: {'x' * 300}", "is no file name: the name of a file or folder has at most 255 bytes"),
        (f"publish: {{to: zoo, name: {'x' * 300}}}", "publish.name: may hold up to 100 letters"),
        (f"distill: {{teachers: [a/{'x' * 300}]}}", "is no file name"),
        (f"distill: {{cross_encoder: {'x' * 300}}}", "distill.cross_encoder: 'xxx"),
        (f"distill: {{augment: {{model: {'x' * 300}}}}}", "distill.augment.model: 'xxx"),
        ("version: 2", "version: expected 1, got 2"),
        ("name: a b", "name: may hold up to 100 letters, digits"),
        ("seed: 99999999999999999999", "seed: should be less than 2147483648"),
        ("<<: {seed: 1}", "<<: unknown key"),
        ("1: 2", "1: unknown key"),
    ],
)
def test_each_problem_is_reported_once(section, message):
    result = problems_of(f"task: sst2\nteacher: m\n{section}\n")
    assert len(result) == 1
    assert message in result[0]
    assert result[0].startswith(("line 3, ", "recipe: targets"))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("5", ["line 1, task: expected text, got 5"]),
        ("[sst2]", ["line 1, task: expected a section of keys, got a list"]),
        ("{data: {train: a}}", ["line 1, task.kind: is missing"]),
        ("{kind: clasification, data: {train: a}}", ["line 1, task.kind: no task kind is called 'clasification'; did"]),
        (
            "{kind: classification, data: {train: a, select_share: x}}",
            ["line 1, task.data.select_share: expected a number or auto, got 'x'"],
        ),
        (
            "{kind: classification, data: {train: a, select_share: 1.5}}",
            ["line 1, task.data.select_share: should be less than 1, got 1.5"],
        ),
        (
            "{kind: regression, text: [], labels: [1], data: {format: xml, header: {tset: [a]}}}",
            [
                "line 1, task.data.format: expected csv, tsv, jsonl, json, conll, parquet or txt, got 'xml'",
                "line 1, task.data.header.tset: unknown key; did you mean test?",
                "line 1, task.labels.0: expected text, got 1",
                "line 1, task.text: expected a list with at least 1 item, got an empty list",
            ],
        ),
    ],
)
def test_problems_of_a_task(task, message):
    result = sorted(problems_of(f"task: {task}\nteacher: m\n"))
    assert len(result) == len(message)
    assert all(line.startswith(start) for line, start in zip(result, sorted(message), strict=True)), result


def test_missing_sections():
    assert problems_of("seed: 1\n") == [
        "line 1, task: is missing",
        "line 1, teacher: is missing",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "recipe: has no keys"),
        ("# nothing\n", "recipe: has no keys"),
        ("- a", "recipe: has no keys"),
        ("hello", "recipe: has no keys"),
        ("a: 1\n\tb: 2", "line 2, recipe: not YAML: found character '\\t' that cannot start any token"),
        ("a: [1", "line 1, recipe: not YAML"),
        ("a: 1\nb: c: d", "line 2, recipe: not YAML"),
        ("a: 1\n---\nb: 2", "line 2, recipe: not YAML: but found another document"),
        ("a: 'x", "recipe: not YAML"),
        ("a: 1\nb: \x01", "line 2, recipe: not YAML: unacceptable character"),
        ("a: *b", "found undefined alias"),
        ("seed: 1\nseed: 2", "line 2, seed: is given twice (first in line 1)"),
        ("gate:\n  max_drop: 1\n  max_drop: 2", "line 3, gate.max_drop: is given twice (first in line 2)"),
        ("? [a]\n: 1", "a key must be a word"),
        ("a: !!python/object:os.system x", "line 1, a: the tag !!python/object:os.system is not supported"),
        ("a: !thing {b: 1}", "line 1, a: the tag !thing is not supported"),
        ("a: !!int x", "line 1, a: 'x' cannot be parsed as a number"),
        ("a: &a [*a]", "an alias contains itself"),
        ("[" * 3000, "nested too deeply"),
        ("{a: " * 3000, "nested too deeply"),
        ("a: [" + "1," * 30_000 + "1]", "holds more than 20,000 values"),
        ("a: 1\n" * 100_000, "is larger than 300,000 bytes"),
        ("seed: " + "9" * 5000, "line 1, seed: '999"),
    ],
)
def test_invalid_documents(text, message):
    result = problems_of(text)
    assert message in result[0]
    assert len(result) == 1


def test_aliases_that_expand_exponentially():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "holds more than 20,000 values, aliases included" in problems_of("\n".join(lines))[0]


def test_aliases_of_sections():
    recipe = parse(MINIMAL + "finetune: &short {epochs: 1}\ndistill: *short\n")
    assert recipe.finetune.epochs == recipe.distill.epochs == 1


def test_problems_of_further_checks_have_a_line():
    def check(recipe):
        yield Problem(("gate", "max_drop"), "is too much")
        yield Problem(("seed",), "is odd")

    result = problems_of(MINIMAL + "gate:\n  max_drop: 1\n", "seed=3", checks=[check])
    assert result == ["line 4, gate.max_drop: is too much", "seed: is odd (given on the command line)"]


def test_checks_of_sections_read_the_rest_of_a_recipe_that_does_not_fit():
    def check(recipe):
        yield Problem(("teacher",), f"is {recipe.teacher.source}")
        yield Problem(("task", "data", "limit"), f"is {recipe.task.data.limit}")
        yield Problem(("gate", "max_drop"), "is judged although it is wrong")
        yield Problem(("gate", "strict"), "is missing")

    text = "task: sst2\nteacher: m\ngate: {max_drop: -1, strct: true}\n"
    result = problems_of(text, "seeed=3", "task.data.limit=5", section_checks=[check])
    assert [line.partition("; did")[0] for line in result] == [
        "line 2, teacher: is m",
        "line 3, gate.max_drop: should be greater than or equal to 0, got -1",
        "line 3, gate.strct: unknown key",
        "seeed: unknown key",
        "task.data.limit: is 5 (given on the command line)",
    ]


def test_checks_of_sections_say_nothing_of_those_that_are_replaced():
    def check(recipe):
        yield Problem(("task", "kind"), "is another")
        yield Problem(("teacher",), "is wrong")

    assert [line.split(":")[0] for line in problems_of("teacher: m\n", section_checks=[check])] == [
        "line 1, task",
        "line 1, teacher",
    ]


# --- paths


def test_environment_variables_in_data_paths(monkeypatch):
    monkeypatch.setenv("DATA", "/d")
    data = parse(MINIMAL, "task.data.train=$DATA/a.tsv", "task.data.test=['${DATA}b.tsv', c$.tsv]").task.data
    assert data.train == "/d/a.tsv"
    assert data.test == ("/db.tsv", "c$.tsv")


def test_unset_environment_variable_stays(monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    assert parse(MINIMAL, "task.data.train=$NOWHERE/a.tsv").task.data.train == "$NOWHERE/a.tsv"


def test_home_folder_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    assert parse(MINIMAL, "task.data.train=~/a.tsv").task.data.train == "/h/a.tsv"


def test_hub_splits_are_not_expanded():
    assert parse(MINIMAL, "task.data.hub=a/b", "task.data.train=$x").task.data.train == "$x"


# --- files


def test_default_name_is_that_of_the_file(tmp_path):
    path = tmp_path / "films.yaml"
    path.write_text(MINIMAL)
    assert load_recipe(path, names=NAMES).name == "films"
    path.write_text(MINIMAL + "name: other\n")
    assert load_recipe(path, names=NAMES).name == "other"
    path = path.rename(tmp_path / "my récipe.yaml")
    path.write_text(MINIMAL)
    assert load_recipe(path, names=NAMES).name == "my-recipe"


def test_byte_order_mark_is_ignored(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert load_recipe(path, names=NAMES).teacher.source == "minilm-l6"


def test_unreadable_files(tmp_path):
    (tmp_path / "films.yaml").write_bytes(b"task: sst2\nteacher: \xff\n")
    (tmp_path / ".film.yaml").write_text("no recipe")
    with pytest.raises(RecipeError, match="line 2, recipe: byte 0xff is not UTF-8"):
        load_recipe(tmp_path / "films.yaml")
    with pytest.raises(RecipeError, match=r"there is no such file; did you mean .+films\.yaml"):
        load_recipe(tmp_path / "film.yaml")
    with pytest.raises(RecipeError, match="there is no such file"):
        load_recipe(tmp_path / "nowhere" / "film.yaml")
    with pytest.raises(RecipeError, match="cannot be read: Is a directory"):
        load_recipe(tmp_path)


def test_a_size_without_a_unit_is_refused_where_it_means_a_few_bytes():
    sizes = [parse(f"{MINIMAL}budget: {{size: {size}}}").budget[0].size for size in ("5MB", 5000000)]
    assert sizes == [5_000_000, 5_000_000]
    (problem,) = problems_of(f"{MINIMAL}budget: {{size: 5}}")
    assert "5 bytes are less than any model; give the unit: size: 5MB" in problem


@pytest.mark.parametrize("key", ["p50", "p95", "end_to_end"])
def test_a_time_that_no_call_takes_is_refused(key):
    assert getattr(parse(f"{MINIMAL}budget: {{{key}: 20us}}").budget[0], key) == 0.02
    (problem,) = problems_of(f"{MINIMAL}budget: {{{key}: 1us}}")
    assert f"no model answers in 0.001 ms; the fastest take 0.015 ms ({key}: 0.5ms is half a millisecond)" in problem


@pytest.mark.parametrize(("written", "seconds"), [("8s", 8.0), ("30", 30.0), ("1.5m", 90.0), ("2h", 7200.0)])
def test_budget_with_or_without_unit(written, seconds):
    assert parse(f"{MINIMAL}measure: {{budget: {written}}}").measure.budget == seconds
    assert parse(MINIMAL, f"measure.budget={written}").measure.budget == seconds


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("eight", "expected a duration such as 30s or 5m, got 'eight'"),
        ("true", "expected a number, got true"),
        ("eights", "expected a duration such as 30s or 5m, got 'eights'"),
        ("0s", "should be greater than 0, got 0.0"),
    ],
)
def test_invalid_budgets(written, message):
    assert problems_of(f"{MINIMAL}measure: {{budget: {written}}}") == [f"line 3, measure.budget: {message}"]


def test_many_problems_are_cut():
    with pytest.raises(RecipeError) as error:
        parse("".join(f"key{number}: 1\n" for number in range(3_000)))
    assert str(error.value).startswith("r.yaml: 3,002 problems\n")
    assert str(error.value).endswith("… and 2,982 more")
    assert len(str(error.value).splitlines()) == 22


@pytest.mark.parametrize(
    ("section", "overrides"),
    [
        ("{losses: {attention: 1}, epochs: 2}", ["distill.losses=null"]),
        ("{attention: 1, epochs: 2, hard_label: 0}", ["distill.losses=null", "distill.hard_label=null"]),
        ("{attention: 1, epochs: 2}", ["distill.attention=null"]),
    ],
)
def test_phases_can_replace_losses_by_override(section, overrides):
    phases = "distill.phases=[{share: 1, soft_label: 2}]"
    for order in ([*overrides, phases], [phases, *overrides]):
        recipe = parse(MINIMAL + f"distill: {section}\n", *order)
        assert recipe.distill.loss_names() == {"soft_label"}
        assert recipe.distill.epochs == 2
        assert parse(dump_recipe(recipe)) == recipe


@pytest.mark.parametrize("written", ["{soft_label: 1, attention: 1}", "{losses: {soft_label: 1, attention: 1}}"])
@pytest.mark.parametrize("key", ["soft_label", "losses.soft_label"])
def test_override_finds_a_loss_in_both_notations(written, key):
    text = MINIMAL + f"distill: {written}\n"
    losses = parse(text, f"distill.{key}.weight=3").distill.losses
    assert losses == Losses(soft_label=SoftLabel(weight=3.0), attention=Attention())
    assert parse(text, f"distill.{key}=null").distill.losses == Losses(attention=Attention())
    assert parse(text, "distill.losses={relation: 1}").distill.loss_names() == {"relation"}
    (fault,) = problems_of(text, f"distill.{key}=-1")
    assert "soft_label: should be greater than or equal to 0, got -1 (given on the command line)" in fault


def test_null_removes_a_key_and_true_means_defaults():
    text = MINIMAL + "finetune: {epochs: 9, checkpoint: {minutes: 1}}\ndistill: {cache: 1KB}\n"
    assert parse(text, "finetune.epochs=null").finetune.epochs == "auto"
    assert parse(text, "finetune.checkpoint.minutes=null").finetune.checkpoint.minutes is None
    assert parse(text, "finetune=null") == parse(text, "finetune=true")
    assert parse(text, "distill.cache=true").distill.cache.limit == 2 * 2**30
