"""`compress search`: a budget in, one model and its recipe out."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.cli import main
from compress.console import Console
from compress.errors import UsageError
from compress.model_folder.model_info import ShapeInfo
from compress.models.tiny import write_tiny_model
from compress.pipeline.commands.clean import clean
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import Options, read_recipe
from compress.recipe.load import dump_recipe
from compress.recipe.schema import Gate
from compress.recipe.student_schema import Part
from compress.report.report_schema import read_report
from compress.search import run_search, search_recipes
from compress.search.candidates import SearchInfo
from compress.search.compare_candidates import select_too_small
from compress.search.ray_trainings import trainings
from compress.search.run_search import holds_another, keep_former, search_recipe, wanted_of
from compress.search.search_folder import read_search
from compress.search.search_recipes import (
    budget_overrides,
    finalists_recipe,
    light_students,
    recipe_of_row,
    searched_recipe,
    timed_target,
)
from compress.storage.atomic_write import write_model
from tests.conftest import write_tiny_recipe
from tests.pipeline.test_run_output import Terminal

LIGHT = "{kind: static, hidden: 16, head_width: 16, epochs: 4, batch_size: 16, learning_rate: 0.03}"
QUICK = ["--set", f"student={LIGHT}", "--set", "shared={epochs: 2, batch_size: 16, learning_rate: 0.003}"]
QUICK += ["--set", "publish=null", "--finalists", "2", "--format", "quiet"]


@pytest.mark.parametrize(
    ("text", "goal", "overrides"),
    [
        ("p50=0.5ms,size=5MB,drop=0.015", None, ["budget={p50: 0.5ms, size: 5MB}", "gate.max_drop=0.015"]),
        (" speedup=12 , smaller=20", "size", ["budget={speedup: 12, smaller: 20}", "rank_by=size"]),
        ("", None, []),
    ],
)
def test_a_budget_is_written_as_settings_of_the_recipe(text, goal, overrides, recipe_file):
    assert budget_overrides(text, goal) == overrides
    read_recipe(recipe_file, overrides)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p50", "'p50' is no limit"),
        ("p5=1ms", "no limit 'p5'; did you mean p"),
        ("size=5MB,size=6MB", "size is given twice"),
        ("target=cpu", "no limit 'target'"),
        ("drop=2 points", "got '2 points'"),
        ("drop=2%", "drop is what the score may lose, as a number, got '2%'"),
    ],
)
def test_a_budget_that_cannot_be_read_is_one_message(text, message):
    with pytest.raises(UsageError, match=message):
        budget_overrides(text, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "a search needs a budget"),
        (["--budget", "p50=fast"], "budget.p50"),
        (["--budget", "size=5"], "give the unit"),
        (["--budget", "size=5MB", "--set", "distill=false"], "distill is off"),
        (["--budget", "size=5MB", "--set", "distill.layer_map=[[0, 1]]"], "distill.layer_map is for students of some"),
        (["--budget", "size=5MB", "--set", "distill.freeze=1"], "--set distill.freeze=null"),
    ],
)
def test_bad_input_ends_before_anything_runs(options, message, recipe_file, capsys):
    assert main(["search", str(recipe_file), "--runs", str(recipe_file.parent / "runs"), *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (recipe_file.parent / "runs").exists()


STUDENTS = (
    "student=[{kind: part, layers: 1, heads: 1, ffn: 8}, {kind: static}, {kind: static, hidden: 32}, {kind: conv}]"
)
CASCADES = "cascade=[{first: static-2, then: part-1x1x8}, {first: conv/numpy-fp32, then: teacher}]"


@pytest.mark.parametrize(
    ("winner", "students", "cascades"),
    [
        ("part-1x1x8/onnx-int8", ["part"], []),
        ("static-2/numpy-fp32", ["static", "static"], []),
        ("static-2-then-part-1x1x8/cascade", ["part", "static", "static"], ["static-2"]),
        ("conv-numpy-fp32-then-teacher/cascade", ["conv"], ["conv/numpy-fp32"]),
        ("teacher/onnx-int8", [], []),
    ],
)
def test_the_winners_recipe_has_what_it_is_made_of(winner, students, cascades, recipe_file):
    recipe = resolve(read_recipe(recipe_file, ["prune=null", STUDENTS, CASCADES]))
    left = recipe_of_row(recipe, winner)
    assert [each.kind for each in left.students] == students
    assert [each.first for each in left.cascade] == cascades
    assert left.name == "tiny-winner"
    made = {model.name for model in make_plan(left).models}
    assert winner.partition("/")[0] in made or left.cascade


def test_a_cascade_that_was_found_by_itself_keeps_all_it_may_be_made_of(recipe_file):
    recipe = resolve(read_recipe(recipe_file, ["prune=null", STUDENTS, "cascade=auto"]))
    kept = recipe_of_row(recipe, "static-then-part-1x1x8/cascade", "static-then-part-1x1x8")
    assert (kept.students, kept.cascade, kept.name) == (recipe.students, "auto", "tiny-static-then-part-1x1x8")
    assert recipe_of_row(recipe, "conv/numpy-fp32").cascade == ()


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ([], ["conv/numpy-fp32"]),
        ([Part(layers=1, heads=1, ffn=8)], ["static-2", "conv/numpy-fp32"]),
    ],
)
def test_own_cascades_of_models_that_are_no_finalists_are_left_out(chosen, left, recipe_file):
    recipe = resolve(read_recipe(recipe_file, ["prune=null", STUDENTS, CASCADES]))
    final = finalists_recipe(recipe, chosen, [*recipe.light_students.values()])
    assert [each.first for each in final.cascade] == left
    make_plan(final)


def test_a_cascade_of_what_a_search_leaves_out_is_refused_before_anything_runs(recipe_file, capsys):
    options = ["--set", "student={kind: static}", "--set", "cascade=[{first: static, then: pruned}]"]
    runs = recipe_file.parent / "runs"
    assert main(["search", str(recipe_file), "--budget", "size=5MB", "--runs", str(runs), *options]) == 2
    assert "no model of this run is called 'pruned'" in capsys.readouterr().err
    assert not runs.exists()


def test_what_is_made_of_a_long_name_can_be_run(recipe_file, tmp_path):
    recipe = resolve(read_recipe(recipe_file, ["prune=null", STUDENTS, f"name={'n' * 100}"]))
    final = finalists_recipe(recipe, [*recipe.parts.values()], [])
    winner = recipe_of_row(final, "part-1x1x8/onnx-int8", "part-1x1x8")
    for each in (final, winner, *trainings(final).values()):
        (tmp_path / "made.yaml").write_text(dump_recipe(each))
        assert read_recipe(tmp_path / "made.yaml").name == each.name
    assert winner.name.endswith("n-part-1x1x8")


def test_pruning_stays_with_the_student_it_goes_on_from(recipe_file):
    students = STUDENTS.replace("[", "[{layers: 1}, ", 1)
    recipe = resolve(read_recipe(recipe_file, [students, "budget={size: 5MB}"]))
    assert searched_recipe(recipe, Console("quiet")).prune == recipe.prune
    assert recipe_of_row(recipe, "part-1x1x8/onnx-int8").prune is None
    assert recipe_of_row(recipe, "pruned/onnx-int8").prune == recipe.prune
    assert [each.layers for each in recipe_of_row(recipe, "pruned/onnx-int8").students] == [1.0]
    alone = resolve(read_recipe(recipe_file, ["student=null", "budget={size: 5MB}"]))
    assert searched_recipe(alone, Console("quiet")).prune is None


@pytest.mark.parametrize(
    ("targets", "budget", "timed"),
    [
        ("[{device: cuda}, {device: cpu, name: here}]", "{p50: 1ms}", "here"),
        ("[{device: cpu, batch: 8, name: many}, {device: cpu, name: one}]", "{p50: 1ms, target: one}", "one"),
        ("[{device: cpu, batch: 8, name: many}, {device: cpu, name: one}]", "{size: 5MB}", "many"),
    ],
)
def test_parts_are_timed_where_the_budget_holds_on_a_cpu(targets, budget, timed, recipe_file):
    recipe = read_recipe(recipe_file, [f"targets={targets}", f"budget={budget}"])
    assert timed_target(recipe).title == timed


@pytest.mark.parametrize(
    ("budget", "goal", "message"),
    [
        ("p50=1ms", "scores", "no goal 'scores'; did you mean score"),
        ("", None, "a search needs a budget"),
        ("size=5", None, "give the unit"),
    ],
)
def test_in_python_bad_input_is_an_exception(budget, goal, message, recipe_file):
    with pytest.raises(UsageError, match=message):
        search_recipe(recipe_file, budget, goal=goal)


def test_a_search_without_finalists_is_an_exception(recipe_file):
    with pytest.raises(UsageError, match="at least one finalist; got 0"):
        search_recipe(recipe_file, "p50=1ms", finalists=0)


def test_a_search_without_a_cpu_target_is_refused(recipe_file, capsys):
    options = ["--budget", "p50=1ms", "--set", "targets=[{device: cuda}]", "--runs", str(recipe_file.parent / "runs")]
    assert main(["search", str(recipe_file), *options]) == 2
    assert "a search times parts on the CPU" in capsys.readouterr().err
    assert not (recipe_file.parent / "runs").exists()


@pytest.mark.slow
def test_a_search_ends_with_a_winner_and_its_recipe(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["search", str(write_tiny_recipe(tmp_path)), "--budget", "size=5MB,drop=1", *QUICK]
    assert main(command) == 0
    folder = tmp_path / "searches" / "tiny"
    found = read_search(folder)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    finished = [event["step"] for event in events if event["event"] == "finished"]
    assert finished.index("static") < finished.index("shared")
    assert len(found.candidates) == 2 * 4 * 5 + 1
    finalists = {each.name for each in found.candidates if each.is_finalist}
    assert "static" in finalists
    assert 2 <= len(finalists) <= 3
    report = read_report(tmp_path / "runs" / found.run)
    assert {row.model for row in report.rows} >= {"teacher", *finalists}
    assert {Path(each["folder"]).name for each in clean(tmp_path / "runs", dry_run=True)} <= {".encoded"}
    steps = {path.name for path in (tmp_path / "runs" / ".steps").iterdir()}
    assert main(command) == 0
    assert {path.name for path in (tmp_path / "runs" / ".steps").iterdir()} == steps
    assert main(["run", str(folder / "winner.yaml"), "--format", "quiet"]) == 0
    assert (tmp_path / "runs" / "tiny-winner" / "report.json").is_file()
    later = {
        path.name.rpartition("-")[0] for path in (tmp_path / "runs" / ".steps").iterdir() if path.name not in steps
    }
    assert not {name for name in later if name.startswith(("finetune", "shared", "part", "static", "build", "export"))}
    recipes = {path.stem: path for path in (folder / "recipes").iterdir()}
    assert recipes.keys() == {row.model for row in report.rows} - {"teacher"}
    for path in recipes.values():
        capsys.readouterr()
        assert main(["plan", str(path), "--all", "--format", "json"]) == 0
        steps_left = {row["step"] for row in json.loads(capsys.readouterr().out)["steps"] if row["state"] == "to do"}
        assert not {name for name in steps_left if name.startswith(("finetune", "shared", "part", "static", "export"))}
    again = search_recipe(tmp_path / "tiny.yaml", "size=5MB,drop=1", overrides=QUICK[1::2][:3], finalists=2)
    assert {path.name for path in (tmp_path / "runs" / ".steps").iterdir()} >= steps
    assert (again.info.winner, again.result.report.name) == (found.winner, "tiny-search")
    assert {path.name for path in (tmp_path / "runs").glob("[!.]*")} == {"tiny-search", "tiny-winner"}
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    screen = Terminal()
    wider = {"overrides": QUICK[1::2][:3], "finalists": 2, "console": Console("human", io.StringIO(), screen)}
    search_recipe(tmp_path / "tiny.yaml", "size=5MB,drop=0.9", **wider)
    assert f"search 3/3, {len(finalists)} of 41, best so far " in screen.getvalue()
    assert "rows, too few to tell apart candidates" in screen.getvalue()
    assert search_recipe(tmp_path / "tiny.yaml", "size=5MB,drop=1", **wider).info == again.info
    kept = sorted(path.parent for path in folder.glob("previous/*/search.json"))
    assert [read_search(each).max_drop for each in kept] == [1.0, 0.9]
    capsys.readouterr()
    assert main(["ls", "searches", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {
        "name": "tiny",
        "budget": "size 5MB, drop 1",
        "goal": "p50",
        "candidates": 41,
        "trained on": len(finalists),
        "winner": found.winner,
        "run": "tiny-search",
    }
    assert main([*command[:-1], "json"]) == 0
    assert json.loads(capsys.readouterr().out)["winner"] == found.winner
    capsys.readouterr()
    assert main([*command[:-1], "json", "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)["steps"]
    assert [row["step"] for row in planned if row["state"] not in ("done", "skipped")] == []
    assert main([*command, "--minutes", "30", "--dry-run"]) == 0


@pytest.mark.slow
def test_a_speedup_out_of_reach_is_refused_before_training(tmp_path: Path, capsys) -> None:
    runs = tmp_path / "runs"
    command = ["search", str(write_tiny_recipe(tmp_path)), "--runs", str(runs), "--budget", "speedup=100000"]
    assert main([*command, "--set", "student=null", "--set", "publish=null"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "nothing can meet this budget: of 42 candidates" in message
    assert "; the teacher in PyTorch takes " in message
    assert not [*(runs / ".steps").glob("finetune-*")]


@pytest.mark.parametrize(
    ("content", "message"), [("{", "cannot be read"), ('{"schema_version": 9}', "written by a newer version")]
)
def test_a_search_that_cannot_be_read_is_a_row_of_the_list(content, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "searches" / "my").mkdir(parents=True)
    (tmp_path / "searches" / "my" / "search.json").write_text(content)
    assert main(["ls", "searches", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert message in row["winner"]


def test_a_search_that_has_not_compared_its_candidates_is_listed_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "searches" / "my").mkdir(parents=True)
    (tmp_path / "searches" / "my" / "lock.json").write_text("{}")
    assert main(["ls", "searches", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["winner"], row["candidates"]) == ("my", "not finished", None)


def test_steps_that_a_search_uses_are_not_cleaned(tmp_path):
    for name in ("latency-1", "latency-2", "latency-3", "part-4"):
        (tmp_path / "runs" / ".steps" / name).mkdir(parents=True)
    for folder, step in (("my", "latency-1"), ("my/previous/2026-11-29", "latency-3"), ("my/trainings/part", "part-4")):
        lock = tmp_path / "searches" / folder / "lock.json"
        lock.parent.mkdir(parents=True)
        lock.write_text(json.dumps({"steps": {"latency": step}}))
    assert [Path(row["folder"]).name for row in clean(tmp_path / "runs")] == ["latency-2"]


@pytest.mark.parametrize(
    ("changes", "finished", "winner", "is_kept"),
    [
        ({}, True, True, False),
        ({"max_drop": 0.5}, True, True, True),
        ({"max_drop": 0.5}, False, False, False),
        ({"max_drop": 0.5}, False, True, True),  # it runs again, or was killed in that
        ({"goal": "size"}, True, False, True),
    ],
)
def test_what_a_search_for_another_budget_found_is_kept(changes, finished, winner, is_kept, recipe_file, tmp_path):
    recipe = read_recipe(recipe_file, ["budget={p50: 0.5ms, size: 5MB}"])
    wanted, folder = wanted_of(recipe), tmp_path / "searches" / "my"
    found = SearchInfo(name="my", variant="onnx-int8", candidates=(), run="my-search", finished=finished, **wanted)
    write_model(folder / "search.json", found)
    if winner:
        (folder / "winner.yaml").write_text("name: former")
    assert holds_another(folder, wanted | changes) == is_kept
    kept = keep_former(folder) if is_kept else None
    assert (kept is not None) == is_kept
    if kept is not None:
        assert (kept / "search.json").is_file()
        assert (kept / "winner.yaml").is_file() == winner
        assert keep_former(folder) is None  # it is there already


def test_a_teacher_without_attention_is_refused(recipe_file, tmp_path, monkeypatch):
    sizes = {"hidden": 8, "vocabulary": 9, "parameters": 72, "embedding_parameters": 72}
    shape = ShapeInfo(family="compress-static", heads=(), ffn=(), **sizes)
    monkeypatch.setattr(search_recipes, "shape_of_folder", lambda folder: shape)
    recipe = resolve(read_recipe(recipe_file, ["budget={p50: 1ms}"]))
    with pytest.raises(UsageError, match="has no attention"):
        searched_recipe(recipe, Console("quiet"))


def test_the_winner_is_that_of_the_target_that_parts_are_timed_at(recipe_file, tmp_path, monkeypatch):
    targets = "targets=[{name: many, device: cpu, batch: 8}, {name: one, device: cpu}]"
    recipe = resolve(read_recipe(recipe_file, [targets, "prune=null", "budget={target: one, p50: 1ms}"]))
    verdicts = [SimpleNamespace(target="many", winner="teacher/a"), SimpleNamespace(target="one", winner=None)]
    report = SimpleNamespace(verdicts=verdicts, rows=[], teacher="teacher/a")
    result = SimpleNamespace(report=report)
    monkeypatch.setattr(run_search, "execute", lambda *_: result)
    found = SearchInfo(name="my", variant="onnx-int8", candidates=(), run="my-search", **wanted_of(recipe))
    done = run_search._run_finalists(found, recipe, tmp_path, Options(runs=tmp_path), Console("quiet"))
    assert done.info.finished
    assert done.info.winner is None


def test_a_search_may_freeze_the_embeddings(recipe_file):
    recipe = resolve(read_recipe(recipe_file, ["budget={size: 5MB}", "distill={freeze: 0}"]))
    assert searched_recipe(recipe, Console("quiet")).distill.freeze == 0


def test_a_teacher_that_wins_is_alone_in_its_recipe(recipe_file, tmp_path, monkeypatch):
    recipe = resolve(read_recipe(recipe_file, ["budget={size: 5MB}"]))
    assert recipe.student
    verdicts = [SimpleNamespace(target=timed_target(recipe).title, winner="teacher/onnx-int8")]
    result = SimpleNamespace(report=SimpleNamespace(verdicts=verdicts, rows=[], teacher="teacher/torch-fp32"))
    monkeypatch.setattr(run_search, "execute", lambda *_: result)
    found = SearchInfo(name="my", variant="onnx-int8", candidates=(), run="my-search", **wanted_of(recipe))
    run_search._run_finalists(found, recipe, tmp_path, Options(runs=tmp_path), Console("quiet"))
    assert [model.name for model in make_plan(read_recipe(tmp_path / "winner.yaml")).models] == ["teacher"]


@pytest.mark.parametrize(
    ("kind", "named"),
    [("classification", ["static", "conv"]), ("token_classification", ["conv"]), ("multiple_choice", [])],
)
def test_light_students_of_the_budget_compete_where_the_task_allows_them(kind, named, recipe_file):
    recipe = read_recipe(recipe_file)
    task = recipe.task.model_copy(update={"kind": kind})
    assert [*light_students(recipe.model_copy(update={"task": task}))] == named


def test_a_published_winner_has_the_name_of_the_recipe(recipe_file):
    recipe = resolve(read_recipe(recipe_file, ["prune=null", "publish=zoo", STUDENTS]))
    final = finalists_recipe(recipe, [*recipe.parts.values()], [])
    assert (final.name, final.publish.name) == ("tiny-search", "tiny")
    winner = recipe_of_row(final, "part-1x1x8/onnx-int8")
    assert (winner.name, winner.publish.name) == ("tiny-winner", "tiny")
    assert (final.task_title, winner.task_title) == ("tiny", "tiny")


def test_a_limit_of_time_that_one_finalist_exceeds_is_refused(tmp_path, capsys):
    recipe = write_tiny_recipe(tmp_path)
    options = ["--budget", "size=5MB", "--minutes", "1", "--runs", str(tmp_path / "runs"), "--set", "publish=null"]
    options += ["--set", "measure.budget=20m"]
    assert main(["search", str(recipe), *options, "--dry-run"]) == 2
    assert main(["search", str(recipe), *options]) == 2
    assert "--minutes 1: with a single finalist this search takes 2" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_time_that_no_part_can_meet_is_refused_before_training(tmp_path: Path, capsys) -> None:
    recipe = write_tiny_recipe(tmp_path)
    text = recipe.read_text().replace("kind: classification", "kind: multiple_choice").replace(".csv", ".jsonl")
    recipe.write_text(text.replace("student: {layers: 1}\n", ""))
    choices = {"question": "the weather", "choices": ["sun and sky", "rain and storm"]}
    for name in ("train.jsonl", "test.jsonl"):
        (tmp_path / name).write_text("\n".join(json.dumps(choices | {"answer": n % 2}) for n in range(80)))
    options = ["--budget", "p50=5us", "--runs", str(tmp_path / "runs"), "--set", "publish=null"]
    assert main(["search", str(recipe), *options]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "prune is left out" in message
    assert "nothing can meet this budget: of 40 candidates, the fastest, part-1x1x" in message
    assert not [*(tmp_path / "runs" / ".steps").glob("finetune-*")]


@pytest.mark.parametrize(
    ("rows", "gate", "message"),
    [
        (
            40,
            Gate(max_drop=0.015),
            "has 40 rows, too few to tell apart candidates that differ by less than 15 points",
        ),
        (1, Gate(max_drop=0.0), "select has 1 row, too few"),
        (40, Gate(max_drop=0.03), "about 1,000 would tell 3 points"),
        (
            400,
            Gate(max_drop=0.015),
            "about 20 have lost more than is allowed, on 2,000 rows 5 to 8; gate: ",
        ),
        (400, Gate(strict=True), None),
        (1000, Gate(), None),
    ],
)
def test_rows_that_cannot_tell_candidates_apart_are_named(rows, gate, message):
    problem = select_too_small(rows, gate)
    assert problem is None if message is None else message in problem


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_teacher_that_cannot_be_had_is_one_message(more, recipe_file, capsys):
    runs = recipe_file.parent / "runs"
    command = ["search", str(recipe_file), "--runs", str(runs), "--budget", "size=5MB", "--set", "teacher=owner/model"]
    assert main([*command, "--set", "student=null", *more]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "teacher: there is no folder owner/model" in message
    assert not (runs / ".steps").exists()


@pytest.mark.slow
def test_a_search_serves_retrieval_from_another_checkpoint(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("teacher", "other"):
        write_tiny_model(tmp_path / folder, "bert", seed=len(folder))
    for name, count in (("train", 120), ("test", 30)):
        rows = [
            {"query": f"what on day {number} ?", "positives": [f"day {number} was fine"]} for number in range(count)
        ]
        Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    training = "{epochs: 1, batch_size: 16, learning_rate: 0.003}"
    Path("my.yaml").write_text(
        "task: {kind: retrieval, data: {train: train.jsonl, test: test.jsonl}, max_length: 32}\nteacher: teacher\n"
        f"finetune: {training}\ndistill: {training}\nshared: {{source: other, epochs: 1, batch_size: 16}}\n"
        f"student: {LIGHT}\nmeasure: {{rounds: 3, processes: 1, seconds: 0.02, bootstrap: 100, memory: []}}\n"
    )
    found = search_recipe("my.yaml", "size=5MB,drop=1", finalists=1)
    scored = [each.score for each in found.info.candidates if each.name.startswith("part-")]
    assert all(score is not None and 0 < score <= 1 for score in scored)
    assert found.info.winner
    assert [*(tmp_path / "runs" / ".steps").glob("build-shared-*")]
