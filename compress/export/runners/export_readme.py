"""README.md of an exported folder: what it holds, and a script that runs it without compress."""

from __future__ import annotations

from compress.export.runners.runner_code import RUNNERS, decision_of, runner_code
from compress.export.transformers_js import transformers_js_section
from compress.formats import FORMATS
from compress.model_info import GOLDEN_FILE, INFO_FILE, FolderInfo, TaskInfo, VariantInfo
from compress.tasks import kind_of

BACKENDS = {
    "onnx": 'backend="onnx"',
    # On CPUs with bf16 it would round to that by itself.
    "openvino": 'backend="openvino", model_kwargs={"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}',
}
"""How sentence-transformers opens a format; those without do not run there."""


def export_readme(info: FolderInfo, file: str | None = None) -> str:
    """Return the README.md of the folder with this compress.json.

    Args:
        info: of an exported folder.
        file: the model's, where it is not where its format has it.
    """
    assert info.variant is not None
    variant, task = info.variant, info.task
    file = file or FORMATS[variant.format].files[0]
    about = describe_task(task) if task else "An encoder"
    parts = [
        f"# {variant.name}",
        f"{about}, in the format {variant.format} and in {variant.precision}. `compress predict` reads this folder.",
        runner_section(info, file),
        transformers_js_section(info, file),
        sentence_transformers_section(info),
        batch_note(variant),
        f"- `{file}`: the model, which takes {', '.join(info.inputs)}\n"
        f"- `tokenizer.json`, `config.json`, `{INFO_FILE}`: its tokenizer{_cut(task)}, its shape, its task\n"
        f"- `{GOLDEN_FILE}`: texts as token ids, and what PyTorch computes for them, to check a runner in any language:"
        " `GROUP/inputs/NAME` and `GROUP/outputs/NAME`, one padded batch a group",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


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


def runner_section(info: FolderInfo, file: str) -> str:
    """Return the section with the script; empty where the format has none."""
    code = runner_code(info, file)
    if code is None or info.variant is None:
        return ""
    decision, package = decision_of(info.task), RUNNERS[info.variant.format].package
    return "\n\n".join(
        [
            "## Without compress",
            f"    pip install {package} tokenizers numpy\n    python run.py {decision.sample}",
            f"prints {decision.prints}, where this folder holds `run.py`:",
            f"```python\n{code}\n```",
            *_limits(info.task),
        ]
    )


def _cut(task: TaskInfo | None) -> str:
    """Return where the tokenizer cuts texts."""
    return f", which cuts texts at {task.max_length} tokens (`truncation=True` in transformers does)" if task else ""


def sentence_transformers_section(info: FolderInfo) -> str:
    """Return how sentence-transformers opens the folder; empty where it has no class or backend for it."""
    backend = BACKENDS.get(info.variant.format) if info.variant else None
    name = {"similarity": "SentenceTransformer", "retrieval": "SentenceTransformer", "ranking": "CrossEncoder"}.get(
        info.task.kind if info.task else ""
    )
    if backend is None or name is None:
        return ""
    call = 'model.predict([("a query", "a text")])' if name == "CrossEncoder" else 'model.encode(["a text"])'
    code = f'from sentence_transformers import {name}\n\nmodel = {name}(".", {backend})\n{call}'
    return f"## sentence-transformers\n\n```python\n{code}\n```"


def _limits(task: TaskInfo | None) -> list[str]:
    """Return what the script does not do."""
    if task is None or not kind_of(task).in_windows(task):
        return []
    return [f"It reads the first {task.max_length} tokens of a text; compress reads longer ones in windows."]
