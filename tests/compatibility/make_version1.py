"""Make artefacts as compress wrote them at commit f66e7e7 (format version 1), for tests of later versions.

    PYTHONPATH=<checkout of f66e7e7> python make_version1.py OUT

It writes below OUT (an empty or new folder):

- teacher/       a random BERT (3 layers, hidden 16, 4 heads, FFN 64) and its tokenizer, without a head
- data/          invented rows: weather reports with a class, pairs of them with a score
- cards/         a student card and the two recipes; their paths are relative to OUT
- runs/          the finished run `weather` and all of its steps in runs/.steps
- zoo/           the published winner and the zoo's index
- models/        folders that predict: teacher, pruned, embedding, onnx-fp32, onnx-int8; models/expected.json holds what
                 each answered, with the texts

Trainings are in fp32 on one thread of the CPU. Timings, and therefore the winner, may differ from one time to the next.
"""

import json
import os
import random
import shutil
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import compress
from compress.cli import main

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WEATHER = {
    "rainy": ("rain", "grey cloud", "wet", "storm", "drizzle", "umbrella"),
    "sunny": ("sun", "blue sky", "warm", "bright", "dry", "sunshine"),
}
WORDS = (
    "and",
    "on",
    "day",
    "the",
    "in",
    "sun",
    "rain",
    "blue",
    "sky",
    "grey",
    "cloud",
    "warm",
    "wet",
    "storm",
    "bright",
)
TEXTS = ("blue sky and bright on day 900", "grey cloud in the morning, then a storm", "a wet day and warm rain")
PAIRS = (("the sun on day 1", "sunshine on day 2"), ("the rain on day 1", "blue sky on day 2"), ("wet", "wet"))

STUDENT_CARD = """\
schema_version: 1
name: two-of-three
title: "Two layers of the teacher"
shape: {layers: 2}
start: teacher
distill: {losses: {soft_label: 1.0, hidden_state: 1.0, attention: 1.0}}
notes: >-
  For tests.
"""

RECIPE = """\
# Is it sunny or rainy? Every step, on a tiny model.
name: weather
task:
  name: weather
  kind: classification
  data: {train: data/train.csv, test: data/test.csv, select_share: 0.2}
  max_length: 24
teacher: teacher
finetune: {epochs: 20, batch_size: 8, learning_rate: 0.003, precision: fp32}
student: two-of-three
distill: {epochs: 12, batch_size: 8, learning_rate: 0.003, precision: fp32}
prune:
  heads: 0.375
  ffn: 0.375
  batches: 4
  recover: {epochs: 6, batch_size: 8, learning_rate: 0.002, precision: fp32}
quantize: {method: int8, max_drop: 1.0}
gate: {max_drop: 1.0}
targets: [{device: cpu, threads: 1}]
measure: {rounds: 3, processes: 1, seconds: 0.02, bootstrap: 100, memory: 1}
publish: zoo
"""

PAIRS_RECIPE = """\
# How alike are two weather reports? Its teacher has one layer and is not kept: only models/embedding is.
name: pairs
task:
  name: pairs
  kind: similarity
  data: {train: data/pairs.jsonl, test_share: 0.2, select_share: 0.2}
  range: [0, 5]
  max_length: 24
teacher: small
finetune: {epochs: 8, batch_size: 8, learning_rate: 0.003, precision: fp32}
targets: [{device: cpu, threads: 1}]
"""


def make(out: Path) -> None:
    """Write everything into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(out)
    torch.set_num_threads(1)
    write_teacher(Path("teacher"), layers=3)
    write_data(Path("data"))
    write_cards(Path("cards"))
    report = compress.run("weather", cards=["cards"], runs="runs")
    assert all(row.status == "ok" for row in report.rows), [row.reason for row in report.rows]
    copy_model(only("runs", "finetune"), "teacher")
    copy_model(only("runs", "prune"), "pruned")
    copy_model(only("runs", "export-pruned-onnx-fp32"), "onnx-fp32")
    copy_model(only("runs", "quantize-pruned-onnx-int8"), "onnx-int8")
    write_teacher(Path("small"), layers=1)
    pairs = ["run", "pairs", "--cards", "cards", "--runs", "aside", "--until", "finetune", "--format", "quiet"]
    assert main(pairs) == 0
    copy_model(only("aside", "finetune"), "embedding")
    for made in ("aside", "small"):
        shutil.rmtree(made)
    shutil.rmtree("runs/.steps/.locks")  # names of processes and of this host; made again when needed
    for rest in (".partial", ".trash"):
        shutil.rmtree(Path("runs/.steps", rest), ignore_errors=True)
    for path in Path().rglob("*.safetensors"):
        path.chmod(0o644)
    expected = {name: answers(name, TEXTS) for name in ("teacher", "pruned", "onnx-fp32", "onnx-int8", "embedding")}
    expected["embedding-pairs"] = answers("embedding", PAIRS)
    Path("models/expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def write_teacher(folder: Path, layers: int) -> None:
    """A random BERT whose weights are large enough that its answers differ from text to text."""
    pieces = [*SPECIAL, ".", ",", *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.15,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
        model_input_names=["input_ids", "attention_mask", "token_type_ids"],
    ).save_pretrained(folder)


def write_data(folder: Path) -> None:
    """Invented rows; no text stands twice."""
    folder.mkdir()
    draw = random.Random(0)

    def text(label: str, day: int) -> str:
        first, second = draw.sample(WEATHER[label], 2)
        if draw.random() < 0.3:  # some days are mixed, so that models make mistakes
            second = draw.choice(WEATHER[{"rainy": "sunny", "sunny": "rainy"}[label]])
        return f"{first} and {second} on day {day}"

    for name, days in (("train", range(60)), ("test", range(100, 132))):
        rows = [f"{text(label, day)},{label}" for day in days for label in [("rainy", "sunny")[day % 2]]]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    pairs = []
    for day in range(48):
        first, second = ("rainy", "sunny")[day % 2], ("rainy", "sunny")[day // 2 % 2]
        alike = draw.choice((4, 5) if first == second else (0, 1))
        pairs.append({"sentence1": text(first, day), "sentence2": text(second, day + 200), "score": alike})
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")


def write_cards(folder: Path) -> None:
    """The recipes, and the student that one of them names."""
    files = {
        "students/two-of-three.yaml": STUDENT_CARD,
        "recipes/weather.yaml": RECIPE,
        "recipes/pairs.yaml": PAIRS_RECIPE,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def only(runs: str, step: str) -> Path:
    """The one folder of a step."""
    (result,) = Path(runs, ".steps").glob(f"{step}-????????????????")
    return result


def copy_model(step: Path, name: str) -> None:
    """A step's folder as it is deployed: without the record of the step."""
    shutil.copytree(step, Path("models", name), ignore=shutil.ignore_patterns("step.json"))


def answers(name: str, texts: tuple) -> list[dict]:
    """What a folder answers to each text alone (an INT8 model's numbers depend on the batch), to 6 digits."""
    model = compress.open(Path("models", name))
    return [{"text": text, **rounded(model.predict([text])[0])} for text in texts]


def rounded(answer: dict) -> dict:
    """The answer with 6 digits of each number."""

    def short(value):
        return [short(each) for each in value] if isinstance(value, (list, tuple)) else round(float(value), 6)

    return {key: value if value is None or isinstance(value, str) else short(value) for key, value in answer.items()}


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
