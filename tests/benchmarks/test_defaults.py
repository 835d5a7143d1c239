"""The comparison of the default recipe, and the sweep behind its settings: on rows and results made up here."""

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.defaults import __main__ as command
from benchmarks.defaults import sweep, training_contestants
from benchmarks.defaults.comparison import DefaultsReport, Entry
from benchmarks.defaults.defaults_page import goals, page, scores, times
from benchmarks.defaults.real_sets import SETS, RealSet
from benchmarks.defaults.training_contestants import CONTESTANTS, SETFIT, Case
from benchmarks.defaults.wiki_articles import write_wiki_articles
from benchmarks.distill_throughput.environments import NotInstalled
from benchmarks.finished_run import FinishedRun
from benchmarks.report_store import Store
from compress.console import Console
from compress.errors import CompressError, DataError
from compress.measure.quality.quality_result import Difference


@pytest.fixture
def films(tmp_path, monkeypatch, tiny_folder):
    """A set of short rows, and a tiny encoder in the place of MiniLM."""
    words = ["great", "fine", "dull", "bad"]
    lines = [
        f"the film is {words[row % 4]} {'so ' * (row % 5)},{('praise', 'blame')[row % 4 // 2]}" for row in range(120)
    ]
    for role in ("train", "test"):
        (tmp_path / f"{role}.csv").write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    files = {"train": "train.csv", "test": "test.csv"}
    task = {"name": "films", "kind": "classification", "text": ["text"], "label": "label", "max_length": 16}
    monkeypatch.setenv("COMPRESS_DATA", str(tmp_path))
    monkeypatch.setitem(SETS, "films", RealSet(files, task))
    for module in (sweep, training_contestants):
        monkeypatch.setattr(module, "TEACHER", str(tiny_folder("bert")))


def versus(value, p_value=0.5):
    return Difference(value=value, low=value - 0.01, high=value + 0.01, p_value=p_value, test="mcnemar")


@pytest.fixture
def report():
    ours = {"bag of words": 0.8, "probe": 0.85, "teacher": 0.9, "pruned": 0.899, "winner": 0.88}
    entries = [
        Entry(set="films", seed=0, contestant="ours", scores=ours, seconds=600, training=60),
        Entry(
            set="films",
            seed=0,
            contestant="grid",
            scores={"grid": 0.91},
            training=30,
            versus=versus(-0.01),
            settings="rate 0.0002, 5 epochs",
        ),
        Entry(set="films", seed=0, contestant="setfit", reason="SetFit classifies single texts only."),
    ]
    return DefaultsReport(begun_at="now", made_by="compress", limit=8000, grid="0.0002 and 5", entries=tuple(entries))


def test_a_table_has_one_row_a_set(report):
    (row,) = scores(report)
    assert (row["set"], row["seeds"], row["trainer"]) == ("films", "1", "")
    assert (row["teacher"], row["grid"]) == ("0.9000", "0.9100")


def test_a_mean_over_fewer_seeds_than_the_set_has_says_so(report):
    second = report.entries[0].model_copy(update={"seed": 1, "scores": {"teacher": 0.8}})
    (row,) = scores(report.model_copy(update={"entries": (*report.entries, second)}))
    assert (row["seeds"], row["teacher"], row["grid"], row["probe"]) == ("2", "0.8500", "0.9100 (1)", "0.8500 (1)")


def test_goals_compare_the_teacher_with_the_best_of_the_grid(report):
    (row,) = goals(report)
    assert (row["teacher - grid"], row["not worse than the grid"], row["goals"]) == ("-1.0", "yes", "missed")
    assert (row["pruned"], row["winner"]) == ("0.999", "0.978")  # the winner keeps too little
    assert row["time"] == "2.0"
    worse = report.entries[1].model_copy(update={"versus": versus(-0.01, p_value=0.01)})
    (row,) = goals(report.model_copy(update={"entries": (report.entries[0], worse)}))
    assert row["not worse than the grid"] == "no"


@pytest.mark.parametrize(("teacher", "gained", "verdict"), [(0.906, "-0.4", "yes"), (0.9, "-1.0", "")])
def test_a_teacher_trained_after_the_grid_is_compared_by_its_score_alone(report, teacher, gained, verdict):
    ours, grid, *_ = report.entries
    ours = ours.model_copy(update={"scores": {**ours.scores, "teacher": teacher}})
    unpaired = grid.model_copy(update={"versus": None})
    (row,) = goals(report.model_copy(update={"entries": (ours, unpaired)}))
    assert (row["teacher - grid"], row["not worse than the grid"]) == (gained, verdict)


def test_goals_of_a_set_without_a_grid_are_open_or_missed(report):
    first = report.entries[0].model_copy(update={"scores": {**report.entries[0].scores, "winner": 0.899}})
    (row,) = goals(report.model_copy(update={"entries": (first,)}))
    assert (row["not worse than the grid"], row["above baselines"], row["time"], row["goals"]) == (
        "",
        "yes",
        "",
        "open",
    )
    below = first.model_copy(update={"scores": {**first.scores, "probe": 0.91}})
    (row,) = goals(report.model_copy(update={"entries": (below,)}))
    assert (row["above baselines"], row["goals"]) == ("no", "missed")


def test_durations_of_different_processors_or_seeds_are_not_compared(report):
    ours, grid, *_ = report.entries
    slow = grid.model_copy(update={"processor": "EPYC", "training": 600})
    (row,) = times(report.model_copy(update={"entries": (ours, slow)}))
    assert row["teacher / best"] == ""
    other = ours.model_copy(update={"processor": "EPYC", "training": 1200}), ours.model_copy(update={"seed": 1})
    (row,) = times(report.model_copy(update={"entries": (*other, slow)}))
    assert (row["teacher / best"], row["whole run / best"]) == ("2.0", "1.0")


def test_times_are_in_minutes(report):
    (row,) = times(report)
    assert (row["whole run"], row["teacher's training"], row["best of the grid"]) == ("10.0 min", "1.0 min", "0.5 min")
    assert (row["teacher / best"], row["whole run / best"]) == ("2.0", "20.0")
    assert row["best settings"] == "rate 0.0002, 5 epochs"


@pytest.mark.parametrize(("training", "goal"), [(90, "met"), (91, "missed")])
def test_a_teacher_trains_at_most_three_times_as_long_as_the_best_of_the_grid(report, training, goal):
    ours, *others = report.entries
    ours = ours.model_copy(update={"scores": {**ours.scores, "winner": 0.899}, "training": training})
    (row,) = goals(report.model_copy(update={"entries": (ours, *others)}))
    assert row["goals"] == goal


def test_the_page_says_what_was_not_measured(report):
    text = page(report)
    assert "films/0/setfit: SetFit classifies single texts only." in text
    assert "| films | 1 |" in text
    assert "a grid of fine-tunings (learning rates and epochs: 0.0002 and 5)" in text


def test_the_page_names_other_processors(report):
    assert "another processor" not in page(report)
    first, *others = report.entries
    entries = (first, *(each.model_copy(update={"processor": "EPYC"}) for each in others))
    assert "- EPYC: films/0/grid, films/0/setfit" in page(report.model_copy(update={"entries": entries}))


def test_a_trial_is_small_and_overwrites_no_report():
    given = command.parse(["--trial", "--sets", "sst2", "--only", "grid"])
    assert (given.rows, given.seeds, given.out, given.only) == (200, 1, None, ("ours", "grid"))
    assert given.grid == "trial"
    assert command.parse([]).only == tuple(CONTESTANTS)
    assert command.command(command.parse(["--grid", "small"])).endswith("--grid small --rows 8000")


def test_what_fails_has_a_reason_and_the_rest_goes_on(tmp_path, monkeypatch):
    def fail(case):
        raise CompressError("it said no")

    monkeypatch.setitem(CONTESTANTS, "ours", lambda case: Entry(set=case.set, seed=0, contestant="ours"))
    monkeypatch.setitem(CONTESTANTS, "trainer", fail)
    given = command.parse(["--trial", "--sets", "sst2,rte", "--only", "trainer"])
    store = Store(DefaultsReport(begun_at="now", made_by="compress", limit=9), tmp_path / "report", page)
    command.compare(given, tmp_path, store, Console("quiet"))
    ran = [each.key for each in store.report.entries]
    assert ran == ["sst2/0/ours", "sst2/0/trainer", "rte/0/ours", "rte/0/trainer"]
    assert store.report.entry("rte/0/trainer").reason == "it said no"
    assert len(json.loads((tmp_path / "report" / "report.json").read_text())["entries"]) == 4


@pytest.fixture
def comparison(monkeypatch, tmp_path):
    """Two sets, seed by seed; the contestants write down who ran, and `trainer` may be interrupted or fail."""
    ran, trouble = [], {}

    def contestant(name):
        def measure(case):
            ran.append(f"{case.set}/{case.seed}/{name}")
            if error := trouble.pop(ran[-1], None):
                raise error
            if name == "ours":
                (case.folder / "runs" / "recipe").mkdir(parents=True, exist_ok=True)
                (case.folder / "runs" / "recipe" / "report.json").touch()
            return Entry(set=case.set, seed=case.seed, contestant=name, seconds=10)

        return measure

    for name in CONTESTANTS:
        monkeypatch.setitem(CONTESTANTS, name, contestant(name))

    def run(*words):
        ran.clear()
        options = ["--sets", "sst2,rte", "--only", "trainer", "--seeds", "1", "--out", str(tmp_path / "out"), *words]
        return command.main(options), list(ran)

    return run, trouble


def test_what_is_no_report_or_no_folder_is_one_message(comparison, tmp_path, capsys):
    run, _ = comparison
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text("{}")
    with pytest.raises(CompressError, match="is no report of this benchmark"):
        run()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        run("--work", str(tmp_path / "file"))
    assert "is not a folder" in capsys.readouterr().err


def test_the_same_command_goes_on_with_what_is_missing(comparison, tmp_path):
    run, trouble = comparison
    work = ["--work", str(tmp_path / "work")]
    trouble["rte/0/trainer"] = KeyboardInterrupt()
    assert run(*work) == (130, ["sst2/0/ours", "sst2/0/trainer", "rte/0/ours", "rte/0/trainer"])
    assert run(*work) == (0, ["rte/0/trainer"])
    assert run(*work) == (0, [])
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert len(stored["entries"]) == 4
    assert 40 <= stored["seconds"] < 60
    assert run(*work, "--seeds", "2")[1] == ["sst2/1/ours", "sst2/1/trainer", "rte/1/ours", "rte/1/trainer"]
    assert len(run(*work, "--rows", "500")[1]) == 4  # another command


def test_without_its_folder_the_default_recipe_runs_again_for_the_others(comparison):
    run, trouble = comparison
    trouble["rte/0/trainer"] = KeyboardInterrupt()
    assert run()[0] == 130
    assert run() == (0, ["rte/0/ours", "rte/0/trainer"])


def test_what_failed_is_tried_again_where_the_rows_are_there(comparison, tmp_path):
    run, trouble = comparison
    work = ["--work", str(tmp_path / "work")]
    trouble["rte/0/trainer"] = CompressError("it said no")
    assert run(*work)[0] == 0
    assert run() == (0, [])
    assert run(*work) == (0, ["rte/0/trainer"])
    trouble["sst2/0/ours"] = CompressError("no memory")
    assert run(*work, "--rows", "500") == (1, ["sst2/0/ours", "rte/0/ours", "rte/0/trainer"])
    assert run("--rows", "500") == (0, ["sst2/0/ours", "sst2/0/trainer"])


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("COMPRESS_DATA", raising=False)
    with pytest.raises(DataError, match="COMPRESS_DATA is not set"):
        SETS["sst2"].section(tmp_path)
    monkeypatch.setenv("COMPRESS_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"there is no .*glue/SST-2"):
        SETS["sst2"].section(tmp_path)


def test_a_set_of_many_classes_is_drawn_from_articles_once(tmp_path, monkeypatch):
    articles = replace(SETS["wiki_articles"], write=partial(write_wiki_articles, articles=2))
    texts = {"Long": 100, "Short": 99, "Longer": 120, "Third": 100}
    sentences = {
        title: [f"Sentence {n} of {title} is here. Too short." for n in range(texts[title])] for title in texts
    }
    lines = [json.dumps({"title": title, "text": "\n".join(each)}) for title, each in sentences.items()]
    source, work = tmp_path / "wiki_en" / "AA.jsonl.gz", tmp_path / "work"
    source.parent.mkdir()
    source.write_bytes(gzip.compress("\n".join(lines).encode()))
    work.mkdir()
    monkeypatch.setenv("COMPRESS_DATA", str(tmp_path))
    files = articles.section(work)["data"]
    train, test = (
        [json.loads(line) for line in Path(files[role]).read_text().splitlines()] for role in ("train", "test")
    )
    assert (len(train), len(test)) == (170, 30)
    assert {row["label"] for row in train} == {row["label"] for row in test} == {"Long", "Longer"}
    assert len({row["text"] for row in train + test}) == 200
    assert "Too short." not in {row["text"] for row in train}
    times = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    assert articles.section(work)["data"] == files
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*")} == times


@pytest.mark.slow
def test_a_sweep_goes_on_with_what_is_missing(films, tmp_path, capsys):
    out = tmp_path / "rows.jsonl"
    words = ["--sets", "films", "--sizes", "32", "--work", str(tmp_path / "work"), "--out", str(out)]
    assert sweep.main(["finetune", *words, "--rates", "1e-3", "--epochs", "2"]) == 0
    (row,) = sweep.read_rows(out)
    assert (row["set"], row["train"], len(row["scores"]), row["learning_rate"]) == ("films", 32, 2, 1e-3)
    assert sweep.main(["finetune", *words, "--rates", "1e-3", "2e-3", "--epochs", "2"]) == 0
    assert [each["learning_rate"] for each in sweep.read_rows(out)] == [1e-3, 2e-3]
    assert sweep.main(["finetune", *words, "--rates", "1e-3", "--epochs", "2", "--batches", "32", "16"]) == 0
    assert [each["batch_size"] for each in sweep.read_rows(out)] == [32, 32, 16]
    assert "films" in capsys.readouterr().out


def test_a_sweep_of_students_needs_teachers_and_data(films, tmp_path, monkeypatch, capsys):
    words = [
        "distill",
        "--sets",
        "films",
        "--sizes",
        "32",
        "--work",
        str(tmp_path / "work"),
        "--out",
        str(tmp_path / "o"),
    ]
    assert sweep.main(words) == 1
    assert "run `finetune` first" in capsys.readouterr().err
    monkeypatch.delenv("COMPRESS_DATA")
    assert sweep.main([*words, "--work", str(tmp_path / "other")]) == 1
    assert "COMPRESS_DATA is not set" in capsys.readouterr().err


def test_students_learn_from_the_best_teacher_of_the_sweep(films, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "STUDENTS", ({"epochs": 1.0},))
    out = tmp_path / "rows.jsonl"
    words = ["--sets", "films", "--sizes", "32", "--work", str(tmp_path / "work"), "--out", str(out)]
    sweep.main(["finetune", *words, "--rates", "1e-3", "--epochs", "1"])
    sweep.main(["distill", *words])
    teacher, student = sweep.read_rows(out)
    assert student["teacher"] == teacher["score"]
    assert student["losses"] == {"soft_label": 1.0, "hidden_state": 1.0}


@pytest.fixture
def case(films, tmp_path, monkeypatch):
    """A case whose default recipe is taken for run: its rows, and a teacher."""
    folder = tmp_path / "case"
    SETS["films"].prepare(folder / "data", limit=64)
    given = Case("films", 0, folder, 64, "trial", trial=True)
    monkeypatch.setattr(FinishedRun, "step", lambda self, name: folder / name)
    training_contestants.finetune(
        training_contestants.TEACHER, folder / "data", training_contestants.Finetune(epochs=1), 0, folder / "finetune"
    )
    return given


@pytest.mark.parametrize("contestant", ["trainer", "grid"])
def test_contestants_are_compared_on_the_same_rows(contestant, case):
    entry = CONTESTANTS[contestant](case)
    assert 0 <= entry.scores[contestant] <= 1
    assert entry.versus.test == "mcnemar"
    assert entry.seconds > 0


def test_a_killed_default_recipe_goes_on_and_its_time_is_that_of_its_steps(films, tmp_path, monkeypatch):
    commands, steps = [], tmp_path / "case" / "runs" / ".steps"
    (steps / ".partial" / "finetune-0").mkdir(parents=True)
    (tmp_path / "case" / "recipe.yaml").touch()
    monkeypatch.setattr(training_contestants, "_compress", lambda case, *words: commands.append(words))
    monkeypatch.setattr(training_contestants, "_scores", lambda report: [("teacher", 0.9)])
    ran = [SimpleNamespace(name="data", seconds=500.0), SimpleNamespace(name="finetune", seconds=60.0)]
    monkeypatch.setattr(FinishedRun, "report", SimpleNamespace(steps=ran))
    entry = CONTESTANTS["ours"](Case("films", 3, tmp_path / "case", 64, "trial", trial=True))
    assert [words[0] for words in commands] == ["init", "run"]
    assert {"seed=3", "task.data.limit=64"} <= set(commands[1])
    assert not (steps / ".partial").exists()
    assert not (tmp_path / "case" / "recipe.yaml").exists()  # else `compress init` would refuse
    assert entry.seconds == 560.0
    assert (entry.training, entry.scores) == (60.0, {"teacher": 0.9})


@pytest.mark.slow
def test_a_grid_goes_on_with_what_is_missing(case, monkeypatch):
    trained = []

    def train(case, settings, name):
        if len(trained) == 1:
            raise KeyboardInterrupt
        trained.append(name)
        return training(case, settings, name)

    training = training_contestants._train
    monkeypatch.setitem(training_contestants.GRIDS, "trial", ((1e-3, 1e-5), (1.0,)))
    monkeypatch.setattr(training_contestants, "_train", train)
    with pytest.raises(KeyboardInterrupt):
        CONTESTANTS["grid"](case)
    monkeypatch.setattr(training_contestants, "_train", training)
    entry = CONTESTANTS["grid"](case)
    assert trained == ["rate 0.001, 1 epochs"]
    tried = json.loads((case.folder / "grid.json").read_text())
    assert list(tried) == ["rate 0.001, 1 epochs", "rate 1e-05, 1 epochs"]
    assert entry.seconds == sum(seconds for _, seconds in tried.values())
    assert [path.name for path in case.folder.glob("rate*")] == [entry.settings]


def test_setfit_takes_single_texts_only_and_may_be_missing(case, monkeypatch):
    def refuse(self):
        raise NotInstalled("setfit cannot be installed")

    monkeypatch.setattr(type(SETFIT), "install", refuse)
    assert command.attempt(case, "setfit").reason == "setfit cannot be installed"
    pairs = [{"text": "a", "text_pair": "b", "label": 0}]
    monkeypatch.setattr(type(case.ours.roles), "rows", lambda self, role: pairs)
    assert command.attempt(replace(case), "setfit").reason == "SetFit classifies single texts only."
