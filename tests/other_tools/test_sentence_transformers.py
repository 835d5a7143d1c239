"""sentence-transformers opens our folders, and its folders are exported; each version in an environment of its own."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import compress
from benchmarks.distill_throughput.environments import NotInstalled
from compress.console import Console
from compress.model_folder.model_info import TaskInfo
from compress.models.heads import HEADS
from compress.models.nonuniform_models import with_head_pooling
from compress.pipeline.commands.export_command import chosen_variants, export_folder
from compress.prune.surgery import remove_units
from tests.other_tools.tool_environments import TRANSFORMERS_4, TRANSFORMERS_5, installed
from tests.variant_builder import build

JOB = Path(__file__).parent / "jobs" / "sentence_transformers_folders_job.py"
VERSIONS = {"5.7": TRANSFORMERS_4, "6.2": TRANSFORMERS_5}
BACKENDS = {"5.7": ("onnx", "openvino"), "6.2": ("openvino",)}
"""Version 6 requires transformers 5, and the library of its ONNX backend one before 4.58."""

TEXTS = ["a good film", "bad plot", "not the great film but it is good", "dull " * 60, "\u4eca\u65e5 \U0001f600"]
ALIKE = TaskInfo(name="alike", kind="similarity", text=("one", "other"), metric="spearman", max_length=24)
RANK = TaskInfo(name="rank", kind="ranking", text=("q", "c"), metric="map", max_length=32)


def answers_of(version, jobs, folder):
    """What one version of sentence-transformers answers to (folder, class, backend) with the texts."""
    try:
        python = installed(VERSIONS[version])
    except NotInstalled as error:
        pytest.skip(str(error))
    (folder / "job.json").write_text(json.dumps([[*job, TEXTS] for job in jobs]), encoding="utf-8")
    command = [str(python), str(JOB), str(folder / "job.json"), str(folder / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out.json").read_bytes())


def ours(folder):
    """Our vectors, or scores with the first text, one at a time."""
    model = compress.open(folder)
    if model.task.kind == "ranking":
        return np.array([model.predict([(TEXTS[0], text)])[0]["scores"][0] for text in TEXTS])
    return np.array([model.predict([text])[0]["embedding"] for text in TEXTS])


def check(answer, folder, length):
    """Compare vectors or scores with ours, to rounding, and the length at which texts are cut."""
    *values, (cut,) = answer
    expected = ours(folder)
    assert cut == length
    np.testing.assert_allclose(np.array(values).reshape(expected.shape), expected, atol=1e-5 * np.abs(expected).max())


@pytest.fixture(scope="module")
def models(tiny_model, tiny_folder):
    """Model folders, of which transformers alone reads those named plain."""
    pooled = with_head_pooling(tiny_model("bert").config, "mean")
    pooled.num_labels = 1
    ranker = HEADS["sequence-classification"].model_class(type(pooled))(pooled).eval()
    embedder = tiny_model("bert", head="ForSentenceEmbedding", sentence_size=8, pooling="cls")
    return {
        "plain": tiny_folder(tiny_model("distilbert", head="ForSentenceEmbedding"), ALIKE),
        "retrieval": tiny_folder(embedder, ALIKE.model_copy(update={"kind": "retrieval", "text": ("query",)})),
        "pruned": tiny_folder(remove_units(embedder, [[0, 2], [1]], [list(range(48)), list(range(16, 32))]), ALIKE),
        "plain-ranker": tiny_folder(tiny_model("electra", labels=("score",)), RANK),
        "ranker": tiny_folder(ranker, RANK),
    }


@pytest.fixture(scope="module")
def exports(models, tmp_path_factory):
    """The exports of each model, by its name and backend."""
    folders = {}
    for name, folder in models.items():
        for backend, source in (("onnx", folder), ("openvino", (name, "onnx"))):
            work = folders[name, backend] = tmp_path_factory.mktemp("export")
            build(f"{backend}-fp32", folders.get(source, source), work)
    return folders


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_our_folders_open_in_it_and_answer_equally(version, models, exports, tmp_path):
    cases = [(folder, name, "torch") for name, folder in models.items() if name.startswith("plain")]
    cases += [(folder, *key) for key, folder in exports.items() if key[1] in BACKENDS[version]]
    kinds = ["CrossEncoder" if "ranker" in name else "SentenceTransformer" for _, name, _ in cases]
    jobs = [[str(folder), kind, backend] for (folder, _, backend), kind in zip(cases, kinds, strict=True)]
    for (folder, name, _), answer in zip(cases, answers_of(version, jobs, tmp_path), strict=True):
        check(answer, folder, 32 if "ranker" in name else 24)


FOREIGN = {
    "max": {"pooling": "max", "sentence_normalize": False},
    "weighted": {"pooling": "weightedmean"},
    "root": {"pooling": "mean_sqrt_len_tokens", "sentence_normalize": False},
    "dense": {"pooling": "cls", "sentence_size": 8, "sentence_bias": True, "sentence_activation": "Tanh"},
}
"""What models of others do with the encoder's outputs, and ours never do."""


@pytest.fixture(scope="module")
def foreign(tiny_model, tiny_folder):
    """Folders as sentence-transformers writes them: with its files, and without ours."""
    folders = {
        name: tiny_folder(tiny_model("bert", head="ForSentenceEmbedding", **changes), ALIKE)
        for name, changes in FOREIGN.items()
    }
    for folder in folders.values():
        (folder / "compress.json").unlink()
        config = json.loads((folder / "config.json").read_text())
        for key in [key for key in config if key.startswith("sentence_")] + ["pooling"]:
            config.pop(key, None)
        (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    return folders


def export(folder, to, quantizer=None):
    return export_folder(str(folder), to, chosen_variants([], quantizer)[0], console=Console("quiet"))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
def test_folder_of_sentence_transformers_is_exported(name, foreign, tmp_path):
    info = export(foreign[name], tmp_path / "onnx")
    assert (info.task.kind, info.task.max_length) == ("similarity", 24)
    vectors, lengths = ours(tmp_path / "onnx"), []
    expected = answers_of("6.2", [[str(foreign[name]), "SentenceTransformer", "torch"]], tmp_path)[0][:-1]
    np.testing.assert_allclose(vectors, expected, atol=1e-5 * np.abs(expected).max())
    check(
        answers_of("5.7", [[str(tmp_path / "onnx"), "SentenceTransformer", "onnx"]], tmp_path)[0], tmp_path / "onnx", 24
    )
    assert export(foreign[name], tmp_path / "int8", "int8").variant.precision == "int8"
    for row, other in zip(ours(tmp_path / "int8"), vectors, strict=True):
        lengths.append(row @ other / np.linalg.norm(row) / np.linalg.norm(other))
    assert min(lengths) > 0.98
    score = compress.open(tmp_path / "onnx").predict([(TEXTS[0], TEXTS[0])])[0]["score"]
    assert score == pytest.approx(1.0, abs=1e-6)  # a cosine, of vectors of any length
