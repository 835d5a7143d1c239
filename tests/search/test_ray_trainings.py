"""The trainings of finalists on a Ray cluster: equal results, a machine that is killed, and what is refused."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compress.environment import LIBRARIES, versions
from compress.errors import CompressError, UsageError
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import read_recipe
from compress.pipeline.step_store import StepStore
from compress.search.ray_trainings import train, train_on_cluster, training_threads, trainings
from compress.search.run_search import search_recipe
from tests.conftest import write_tiny_recipe

LIGHT = "{kind: static, hidden: 16, head_width: 16, epochs: 4, batch_size: 16, learning_rate: 0.03}"
QUICK = [
    f"student={LIGHT}",
    "shared={epochs: 2, batch_size: 16, learning_rate: 0.003}",
    "publish=null",
    "prune=null",
]
SEVERAL = (
    "student=[{layers: 1}, {kind: part, layers: 1, heads: 1, ffn: 8}, {kind: static}, {kind: static, hidden: 32},"
    " {kind: conv}]"
)


def test_each_training_has_what_it_needs_and_no_more(recipe_file: Path) -> None:
    recipe = resolve(read_recipe(recipe_file, [SEVERAL, "publish=zoo"]))
    found = trainings(recipe)
    kinds = {name: [each.kind for each in one.students if not hasattr(each, "source")] for name, one in found.items()}
    assert kinds == {
        "student": [],
        "part-1x1x8": ["part"],
        "static": ["static"],
        "static-2": ["static", "static"],
        "conv": ["conv"],
    }
    assert found["student"].prune == recipe.prune
    assert all(one.prune is None for name, one in found.items() if name != "student")
    assert all(one.publish is None and one.cascade == () for one in found.values())
    assert found["conv"].name == "tiny-conv"


@pytest.mark.parametrize(
    ("address", "message"),
    [("nowhere", "'nowhere' is no address"), ("127.0.0.1:{port}", "nothing answers at 127.0.0.1")],
)
def test_an_address_that_does_not_answer_is_one_message(address: str, message: str, recipe_file: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UsageError, match=message):
        train_on_cluster(address.format(port=port), read_recipe(recipe_file), *(None,) * 3)  # type: ignore[arg-type]


def worker(tmp_path: Path, **changes: Any) -> str:
    given: dict[str, Any] = {
        "runs": tmp_path,
        "cards": (),
        "cwd": tmp_path,
        "threads": 1,
        "libraries": versions(LIBRARIES),
    }
    return train("", tmp_path / "training", **{**given, **changes})


def test_a_machine_with_other_versions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompressError, match=r"has torch 2\..* where the search has torch 1\.0"):
        worker(tmp_path, libraries={"torch": "1.0"})
    assert not (tmp_path / "training").exists()


def test_a_machine_without_the_folder_of_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompressError, match="the folder of runs must be shared, at the same place"):
        worker(tmp_path, runs=tmp_path / "elsewhere")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes on this machine."""
    pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": training_threads(), "include_dashboard": False})
    made.second = made.add_node(num_cpus=training_threads())
    yield made
    made.shutdown()


def trained(runs: Path) -> dict[str, str]:
    """The digests of all finalists' trainings."""
    return {each.step: each.digest for each in StepStore(runs).records() if each.step.startswith(("part-", "static"))}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_cluster_trains_the_same_models_though_a_machine_is_killed(cluster, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe, budget = write_tiny_recipe(tmp_path), "size=5MB,drop=1"
    alone = search_recipe(recipe, budget, overrides=QUICK, runs=tmp_path / "alone" / "runs", finalists=3)
    shared = tmp_path / "shared" / "runs"

    def kill() -> None:
        while not [*shared.glob(".steps/.partial/part-*"), *shared.glob(".steps/part-*")]:
            time.sleep(0.1)
        cluster.remove_node(cluster.second)

    killer = threading.Thread(target=kill)
    killer.start()
    found = search_recipe(recipe, budget, overrides=QUICK, runs=shared, finalists=3, ray=cluster.address)
    killer.join()
    ours, theirs = trained(tmp_path / "alone" / "runs"), trained(shared)
    both = ours.keys() & theirs.keys()  # times decide which parts are finalists
    assert len(both) >= 2
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}
    scores = [{each.name: each.score for each in one.info.candidates} for one in (alone, found)]
    assert scores[0] == scores[1]
    assert {path.name for path in (tmp_path / "shared" / "searches" / "tiny" / "trainings").iterdir()} == {
        each.name for each in found.info.candidates if each.is_finalist
    }


@pytest.mark.slow
def test_a_cluster_whose_machines_are_too_small_is_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    from ray.cluster_utils import Cluster

    monkeypatch.chdir(tmp_path)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    monkeypatch.setattr("compress.search.ray_trainings.training_threads", lambda: 2)
    try:
        final = resolve(read_recipe(write_tiny_recipe(tmp_path), QUICK))
        with pytest.raises(UsageError, match=r"no machine of .* has the 2 cores that"):
            train_on_cluster(made.address, final, *(None,) * 3)  # type: ignore[arg-type]
    finally:
        made.shutdown()


def test_the_command_names_the_extra_where_ray_is_missing(recipe_file: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(CompressError, match="ray is needed here and is not installed") as error:
        train_on_cluster("auto", read_recipe(recipe_file), *(None,) * 3)  # type: ignore[arg-type]
    assert "compress-encoders[ray]" in str(error.value.hint)
