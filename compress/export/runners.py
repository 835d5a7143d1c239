"""How an exported folder runs without compress: its README.md, and a short script of its runtime, tokenizers and numpy.

All scripts have the same few lines: the tokenizer, the model (`RUNNERS`, by format), and the decision, which the task's
kind words. A new format is one record here. Each text runs alone, cut by its tokenizer.json to the task's length.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compress.export.other_tools import first_window_note, transformers_js_section
from compress.formats import FORMATS
from compress.model_folder.cascade_info import CASCADE_FILE, FIRST, THEN, read_cascade
from compress.model_folder.model_info import GOLDEN_FILE, INFO_FILE, FolderInfo, TaskInfo, VariantInfo, read_info
from compress.tasks import kind_of
from compress.tasks.base import Script
from compress.tasks.kind import OUTPUTS

BACKENDS = {
    "onnx": 'backend="onnx"',
    # On CPUs with bf16 it would round to that by itself.
    "openvino": 'backend="openvino", model_kwargs={"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}',
}
"""How sentence-transformers opens a format; those without do not run there."""


def export_readme(info: FolderInfo, file: str | None = None, prompt: str = "") -> str:
    """Return the README.md of the folder with this compress.json.

    Args:
        info: of an exported folder.
        file: the model's, where it is not where its format has it.
        prompt: goes before each text.
    """
    assert info.variant is not None
    variant, task = info.variant, info.task
    file = file or FORMATS[variant.format].files[0]
    about = describe_task(task) if task else "An encoder"
    parts = [
        f"# {variant.name}",
        f"{about}, in the format {variant.format} and in {variant.precision}. `compress predict` reads this folder.",
        runner_section(info, file, prompt),
        transformers_js_section(info, file, prompt=prompt),
        sentence_transformers_section(info),
        batch_note(variant),
        f"- `{file}`: the model, which takes {', '.join(info.inputs)}\n"
        f"- `tokenizer.json`, `config.json`, `{INFO_FILE}`: its tokenizer{_cut(task)}, its shape, its task\n"
        f"- `{GOLDEN_FILE}`: texts as token ids, and what PyTorch computes for them, to check a runner in any language:"
        " `GROUP/inputs/NAME` and `GROUP/outputs/NAME`, one padded batch a group",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def cascade_readme(folder: Path) -> str:
    """Return the README.md of the folder of a cascade."""
    info = read_info(folder)
    about = describe_task(info.task) if info.task else "An encoder"
    return f"# cascade\n\n{about}, of two models. `compress predict` reads this folder.\n\n{cascade_section(folder)}\n"


def cascade_section(folder: Path) -> str:
    """Return what a cascade does, and how its models run without compress."""
    cascade = read_cascade(folder)
    lines = (
        "## How it answers",
        f"Each text goes to the first model ({cascade.first}). Where the probability of its answer (with several"
        f" labels, of its least probable decision) is {cascade.threshold:.6g} or more, that is the answer; every other"
        f" text is read again by the second one ({cascade.then}). The first answered {cascade.share:.0%} of the rows"
        " with which this was chosen.",
        f"- `{FIRST}/`, `{THEN}/`: the models, each a complete folder that also runs alone\n"
        f"- `{CASCADE_FILE}`: the probability from which the first one answers",
    )
    return "\n\n".join(lines)


def describe_task(task: TaskInfo) -> str:
    """Return `An encoder for sst2 (classification)`; where the task has no name of its own, the kind alone."""
    kind = task.kind.replace("_", " ")
    return f"An encoder for {kind}" if task.name == task.kind else f"An encoder for {task.name} ({kind})"


def batch_note(variant: VariantInfo) -> str:
    """Return how many texts may run together; empty where outputs do not depend on it."""
    if not variant.batch_sensitive:
        return ""
    batch = variant.scored_batch
    if batch is None:
        use = f"Run each text alone, or in the batches in which a run scored it (`scored_batch` in `{INFO_FILE}`)"
    else:
        use = f"It was scored {'one text at a time' if batch == 1 else f'in batches of {batch}'}: run it so"
    return (
        "**Batches.** A text's outputs depend a little on the texts that run in the same batch, because a batch shares"
        " the scales by which activations become 8-bit integers; decisions near the border change (`batch_sensitive`"
        f" in `{INFO_FILE}`). {use}, as `compress predict` does."
    )


def runner_section(info: FolderInfo, file: str, prompt: str = "") -> str:
    """Return the section with the script; empty where the format has none."""
    code = runner_code(info, file, prompt)
    if code is None or info.variant is None:
        return ""
    script, package = script_of(info.task), RUNNERS[info.variant.format].package
    return "\n\n".join(
        [
            "## Without compress",
            f"    pip install {package} tokenizers numpy\n    python run.py {script.sample}",
            f"prints {script.prints}, where this folder holds `run.py`:",
            f"```python\n{code}\n```",
            *first_window_note(info.task),
        ]
    )


def _cut(task: TaskInfo | None) -> str:
    """Return where the tokenizer cuts texts."""
    return f", which cuts texts at {task.max_length} tokens (`truncation=True` in transformers does)" if task else ""


def sentence_transformers_section(info: FolderInfo) -> str:
    """Return how sentence-transformers opens the folder; empty where it has no class or backend for it."""
    backend = BACKENDS.get(info.variant.format) if info.variant else None
    name = kind_of(info.task).sentence_transformers if info.task else ""
    if backend is None or not name:
        return ""
    call = 'model.predict([("a query", "a text")])' if name == "CrossEncoder" else 'model.encode(["a text"])'
    code = f'from sentence_transformers import {name}\n\nmodel = {name}(".", {backend})\n{call}'
    return f"## sentence-transformers\n\n```python\n{code}\n```"


MAX_LINES = 15


@dataclass(frozen=True)
class Runner:
    """How a format is opened and called in Python."""

    package: str
    """To install, besides tokenizers and numpy."""
    module: str
    """To import."""
    open: Callable[[VariantInfo, str], list[str]]
    """Lines that open a variant's file."""
    call: str
    """An expression: from `feed`, lists of numbers by input, to the outputs in the graph's order, each of one row."""
    fit: str | None = None
    """A line that changes `encoding`, where it has to get a length that the file reads."""


def _open_onnx(variant: VariantInfo, file: str) -> list[str]:
    """Without VNNI some INT8 products overflow unless an exact kernel is asked for; the folder states if its own do."""
    if variant.precision != "int8" or not variant.session.get("guard_overflow", True):
        return [f'session = onnxruntime.InferenceSession("{file}")']
    return [
        "options = onnxruntime.SessionOptions()",
        'options.add_session_config_entry("session.x64quantprecision", "1")',
        f'session = onnxruntime.InferenceSession("{file}", options)',
    ]


_ARRAYS = "{name: numpy.array([values]) for name, values in feed.items()}"

RUNNERS: Mapping[str, Runner] = {
    "onnx": Runner("onnxruntime", "onnxruntime", _open_onnx, f"session.run(None, {_ARRAYS})"),
    "ort": Runner(
        "onnxruntime",
        "onnxruntime",
        lambda variant, file: [f'session = onnxruntime.InferenceSession("{file}")'],
        f"session.run(None, {_ARRAYS})",
    ),
    "openvino": Runner(
        "openvino",
        "openvino",
        # On CPUs with bf16 it would round to that by itself.
        lambda variant, file: [
            f'model = openvino.compile_model("{file}", "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})'
        ],
        f"list(model({_ARRAYS}).values())",
    ),
    "executorch": Runner(
        "executorch torch",
        "torch, executorch.runtime",
        lambda variant, file: [f'program = executorch.runtime.Runtime.get().load_program("{file}")'],
        'list(map(numpy.array, program.load_method("forward").execute([torch.tensor([v]) for v in feed.values()])))',
    ),
    "litert": Runner(
        "ai-edge-litert",
        "ai_edge_litert.interpreter",
        lambda variant, file: [
            f'model = ai_edge_litert.interpreter.Interpreter("{file}")',
            "runners = {int(name[7:]): model.get_signature_runner(name) for name in model.get_signature_list()}",
        ],
        # Outputs come by name; only answers have two, and their start is the first here.
        "[v for _, v in sorted(runners[len(encoding)](**{k: numpy.int32([v]) for k, v in feed.items()}).items())]"
        "[::-1]",
        "encoding.pad(min(length for length in runners if length >= len(encoding)))",
    ),
}
"""By format. One without a record has no runner; `compress.open` runs it."""

_LABELS = 'labels = json.load(open("compress.json", encoding="utf-8"))["task"]["labels"]'
_TEXTS, _PAIRS = "for text in sys.argv[1:]:", "for pair in zip(sys.argv[1::2], sys.argv[2::2]):"


def script_of(task: TaskInfo | None) -> Script:
    """Return how a task's texts are read and what is printed."""
    return kind_of(task).script(task) if task else OUTPUTS


def runner_code(info: FolderInfo, file: str, prompt: str = "") -> str | None:
    """Return the script that predicts with the model in ``file`` of an exported folder; None where there is none.

    ``prompt`` goes before each text.
    """
    runner = RUNNERS.get(info.variant.format) if info.variant else None
    if info.variant is None or runner is None:
        return None
    task, script = info.task, script_of(info.task)
    loop, encode = script.loop or _TEXTS, script.encode
    if script.loop is None and task is not None and len(task.text) > 1:
        loop, encode = _PAIRS, "*pair"
    if prompt and encode == "text":
        encode = f"{json.dumps(prompt, ensure_ascii=False)} + text"
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    modules = (*(["json"] if script.labels else []), "sys", "numpy", runner.module, "tokenizers")
    lines = [
        f"import {', '.join(modules)}",
        *([_LABELS] if script.labels else []),
        *script.before,
        'tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")',
        *runner.open(info.variant, file),
        loop,
        f"    encoding = tokenizer.encode({encode})",
        *([f"    {runner.fit}"] if runner.fit else []),
        "    feed = {" + ", ".join(f'"{name}": encoding.{fields[name]}' for name in info.inputs) + "}",
        f"    outputs = {runner.call}",
        *(f"    {line}" for line in script.each),
        *script.after,
    ]
    return "\n".join(lines)
