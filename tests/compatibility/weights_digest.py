"""Print one digest for the weights of each model that a fixed tiny recipe makes, to compare two commits on one machine.

    PYTHONPATH=<checkout> python weights_digest.py > digest.txt

It runs fine-tuning, distillation (soft_label, hidden_state, attention) and pruning with recovery: fixed seed, fp32, one
thread of the CPU, nothing measured. It uses the command line only, and finds models by the folders of their steps, so
that it runs before and after pruning became two steps (cut, recover). A second run without recovery gives the
weights just after the cut. Each line: model, digest of its tensors in the order of their names, tensors, numbers. What
depends on the commit (step folders, where compress was found) goes to stderr.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "and",
    "on",
    "day",
    "sun",
    "blue",
    "sky",
    "warm",
    "bright",
    "dry",
    "rain",
    "grey",
    "cloud",
    "wet",
    "storm",
    "drizzle",
]
WEATHER = (("sun", "blue sky", "warm", "bright", "dry"), ("rain", "grey cloud", "wet", "storm", "drizzle"))

RECIPE = """\
name: digest
seed: 7
task:
  name: weather
  kind: classification
  data: {train: train.csv, test: test.csv, select_share: 0.2}
  max_length: 24
teacher: ./teacher
finetune: {epochs: 4, batch_size: 8, learning_rate: 0.003, precision: fp32}
student: {layers: 2}
distill:
  {epochs: 4, batch_size: 8, learning_rate: 0.003, precision: fp32, soft_label: 1.0, hidden_state: 1.0, attention: 1.0}
prune:
  heads: 0.375
  ffn: 0.375
  batches: 4
  recover: {epochs: 2, batch_size: 8, learning_rate: 0.001, precision: fp32, soft_label: 1.0, hidden_state: 1.0}
export: []
targets: [{device: cpu, threads: 1}]
"""

MODELS = {"finetune": "teacher", "distill": "student", "prune": "pruned", "cut": "pruned", "recover": "pruned"}
"""What the model of a step is called here, by the step's name without its fingerprint."""


def main() -> None:
    """Run both recipes in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        where = run(folder, [sys.executable, "-c", "import compress; print(compress.__file__)"])
        sys.stderr.write(f"compress is {where.stdout.strip()}" + "\n")
        compress_run(folder, "whole", ["recover", "prune"])
        compress_run(folder, "without", ["cut", "prune"], "--set", "prune.recover=false")
        whole, without = models(folder / "whole"), models(folder / "without")
        for what, path in {**whole, "cut": without["pruned"]}.items():
            sys.stdout.write(" ".join(map(str, (what, *digest(path / "model.safetensors")))) + "\n")


def write_inputs(folder: Path) -> None:
    """Rows, a random teacher and the recipe."""
    draw = random.Random(0)
    for name, days in (("train", range(80)), ("test", range(100, 120))):
        lines = ["text,label"]
        for day in days:
            first, second = draw.sample(WEATHER[day % 2], 2)
            lines.append(f"{first} and {second} on day {day},{('sunny', 'rainy')[day % 2]}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [*WORDS, *map(str, range(80))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=32, initializer_range=0.15, **sizes)
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder / "teacher")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder / "teacher")
    (folder / "digest.yaml").write_text(RECIPE, encoding="utf-8")


def compress_run(folder: Path, runs: str, steps: list[str], *more: str) -> None:
    """Run the recipe up to the first of these steps that this version has."""
    for step in steps:
        command = [sys.executable, "-m", "compress", "run", "digest.yaml", "--runs", runs, "--until", step, *more]
        done = run(folder, command)
        if done.returncode == 0:
            return
        if done.returncode != 2:  # 2: bad usage, so there may be no such step
            break
    sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def run(folder: Path, command: list[str]) -> subprocess.CompletedProcess:
    """One command in the folder, on one thread, with the caller's PYTHONPATH."""
    path = os.pathsep.join(
        str(Path(each).resolve()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each
    )
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = os.environ | one | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def models(runs: Path) -> dict[str, Path]:
    """Model folders by what they are called here; of a cut and its recovery the recovery."""
    result: dict[str, Path] = {}
    for path in sorted((runs / ".steps").glob("*/model.safetensors")):
        step = path.parent.name.rpartition("-")[0]
        stored_step = json.loads((path.parent / "compress.json").read_bytes())["step"]
        sys.stderr.write(f"{runs.name}: {path.parent.name} (compress.json: {stored_step})" + "\n")
        what = next((MODELS[name] for name in (step, stored_step) if name in MODELS), step)
        if what not in result or step == "recover":
            result[what] = path.parent
    order = sorted(result, key=lambda name: (name != "teacher", name != "student", name))
    return {name: result[name] for name in order}


def digest(file: Path) -> tuple[str, int, int]:
    """The SHA-256 over name, type, shape and bytes of every tensor, and how many tensors and numbers there are."""
    whole, numbers = hashlib.sha256(), 0
    with safe_open(file, framework="numpy") as tensors:
        names = sorted(tensors.keys())
        for name in names:
            tensor = tensors.get_tensor(name)
            whole.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
            whole.update(tensor.tobytes())
            numbers += tensor.size
    return whole.hexdigest(), len(names), numbers


if __name__ == "__main__":
    main()
