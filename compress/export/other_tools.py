"""What other tools read of an exported folder: plain configs, what transformers.js asks for, and Triton's config.pbtxt.

A graph computes what it computes, and config.json only describes it: an export of a pruned model or of one with a head
of ours says `bert` and `BertForSequenceClassification`, without our own keys. The shape stays in compress.json.

Without options transformers.js asks for `onnx/model.onnx` on a CPU and for `onnx/model_quantized.onnx` in WebAssembly.
The dtype in config.json names the file for both, whatever the precision inside. Which folder the file is in no
config.json says: an export with the model beside its config.json is loaded with `subfolder: ""`.

The fields of config.pbtxt are those of Triton's `model_config.proto`. Shapes leave out the batch, which the server adds
where `max_batch_size` is 1 or more.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from compress.data.tokenizer import read_json
from compress.families import FAMILIES, LIGHT_FAMILIES, plain_model_type
from compress.model_folder.model_info import FolderInfo, TaskInfo, VariantInfo
from compress.model_folder.tokenizer_files import write_tokenizer_files
from compress.runtime.model_formats import COMPANIONS, find_graph
from compress.runtime.predictor import answers
from compress.runtimes import WEB, why_not_in
from compress.tasks import kind_of

Settings = dict[str, Any]

OWN_KEYS = (
    "layer_shapes",
    "head_size",
    "factors",
    "head_pooling",
    "head_features",
    "head_layers",
    "pooling",
    "sentence_size",
    "sentence_bias",
    "sentence_activation",
    "sentence_normalize",
)
"""Config keys that only compress reads, all of them for models with weights."""

HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
"""Heads of plain classes that a graph computes; others are exported as the encoder, or pooled on top of it."""


def copy_companions(source: Path, work: Path, task: TaskInfo | None) -> None:
    """Copy the files that belong to a model besides its weights, and write config and tokenizer files plainly."""
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, work / name)
    before = read_json(work / "config.json")
    if before and (after := plain_config(before)) != before:
        (work / "config.json").write_text(json.dumps(after, indent=2) + "\n", encoding="utf-8")
    write_tokenizer_files(work, task)


def plain_config(config: Mapping[str, Any]) -> Settings:
    """Return a config with the family's plain model_type and classes, without our own keys."""
    plain = {key: value for key, value in config.items() if key not in OWN_KEYS}
    model_type = plain_model_type(str(config.get("model_type", "")))
    classes = [_plain_class(str(name), model_type) for name in config.get("architectures") or ()]
    if light := LIGHT_FAMILIES.get(model_type):
        model_type = light.exported_as.lower()
        classes = [name.replace(light.name.title(), light.exported_as, 1) for name in classes]
    plain["model_type"] = model_type
    if classes:
        plain["architectures"] = classes
    if family := FAMILIES.get(model_type):  # under the names that servers read, which DistilBERT has not
        for name, key in {"hidden_size": family.hidden_key, "num_hidden_layers": family.layers_key}.items():
            if key in plain:
                plain.setdefault(name, plain[key])
    return plain


def _plain_class(name: str, model_type: str) -> str:
    """Return transformers' class for what the export of a model of this class computes."""
    prefix, _, head = name.removeprefix("Compress").partition("For")
    family = FAMILIES.get(model_type)
    if head == "MultipleChoice" and family is not None and family.choice_head_is_sequence_head:
        head = "SequenceClassification"
    return f"{prefix}For{head}" if head in HEADS else f"{prefix.removesuffix('Model')}Model"


VERSION = "4.3.1"
"""The one that the lines were tried with."""

DTYPES = {"model.onnx": "fp32", "model_quantized.onnx": "q8"}
"""What transformers.js calls the precision of files with these names."""

KEY = "transformers.js_config"

FUNCTIONS = {"text-classification": "classify", "token-classification": "tag", "question-answering": "answer"}
"""Pipelines of transformers.js whose outputs are those of our tasks, and what the lines call them."""

PROBABLE = ("single_label_classification", "multi_label_classification")
"""Problem types whose probabilities `text-classification` computes; for others it takes a softmax all the same."""

OUTPUTS = {"sentence-similarity": ("AutoModel", "sentence_embedding")}
"""Of other tasks: the class that loads the graph and the output that is read; by default logits of a sequence."""

NODE = """\
import {{ {names} }} from "@huggingface/transformers";
{load}
console.log({shown});"""

BROWSER = """\
<script type="module">
  import {{ env, {names} }} from "https://cdn.jsdelivr.net/npm/@huggingface/transformers@{version}";
  Object.assign(env, {{ allowLocalModels: true, allowRemoteModels: false, localModelPath: "./" }});
  {load}
  document.body.textContent = JSON.stringify({shown});
</script>"""


def name_file(folder: Path) -> None:
    """State in a folder's config.json which ONNX file transformers.js loads; remove that where there is none."""
    graph, config = find_graph(folder, "onnx") or find_graph(folder, "web"), read_json(folder / "config.json")
    stated = {key: value for key, value in config.items() if key != KEY}  # of what it was converted from
    if graph:
        stated[KEY] = {"dtype": DTYPES[graph.name]}
    if config and stated != config:
        (folder / "config.json").write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")


def transformers_js_section(info: FolderInfo, file: str, folder: str = "FOLDER", prompt: str = "") -> str:
    """Return the section of a README with the lines; of a file that does not run in browsers, with the reason.

    Args:
        info: the folder's.
        file: the model's, within the folder.
        folder: its name.
        prompt: goes before each text of an embedding model.
    """
    variant, task = info.variant, info.task
    if variant is None or task is None or variant.format not in ("onnx", "web"):
        return ""
    lines = _lines(task, file, prompt)
    if lines is None:
        return ""
    names, load, shown = lines
    parts = [
        "## In JavaScript",
        f"transformers.js {VERSION} loads this folder. In Node.js, run beside it:",
        f"```js\n{NODE.format(names=names, load=load.format(folder=f'./{folder}'), shown=shown)}\n```",
        *first_window_note(task),
    ]
    if reason := why_not_in(WEB, variant.format, variant.operators):
        return "\n\n".join([*parts, f"In a browser it does not run there: {reason}."])
    page = BROWSER.format(names=names, version=VERSION, load=load.format(folder=folder), shown=shown)
    return "\n\n".join([*parts, "In a page beside it, from any server of files:", f"```html\n{page}\n```"])


def first_window_note(task: TaskInfo | None) -> list[str]:
    """Return that code which runs without compress reads the first window of a text alone; nothing without windows."""
    if task is None or not kind_of(task).in_windows(task):
        return []
    return [f"It reads the first {task.max_length} tokens of a text; compress reads longer ones in windows."]


def _lines(task: TaskInfo, file: str, prompt: str) -> tuple[str, str, str] | None:
    """Return what is imported, the line that loads the model, and the expression that is shown."""
    kind, options = kind_of(task), "" if file.startswith("onnx/") else ', { subfolder: "" }'
    options = options.replace("{", "{{").replace("}", "}}")
    predicts = kind.hub_pipeline != "text-classification" or kind.problem in PROBABLE
    function = FUNCTIONS.get(kind.hub_pipeline) if predicts else None
    if kind.hub_pipeline == "multiple-choice" or task.long == "attention":  # whose weights would count as a class
        return None
    is_pair = (len(task.text) > 1 or kind.is_variadic) and kind.hub_pipeline != "sentence-similarity"
    texts = '"a question", "a context"' if kind.hub_pipeline == "question-answering" else '"a text"'
    if function and (not is_pair or kind.hub_pipeline == "question-answering"):
        load = f'const {function} = await pipeline("{kind.hub_pipeline}", "{{folder}}"{options});'
        return "pipeline", load, f"await {function}({texts})"
    model, output = OUTPUTS.get(kind.hub_pipeline, ("AutoModelForSequenceClassification", "logits"))
    load = (
        f'const [tokenizer, model] = await Promise.all([AutoTokenizer.from_pretrained("{{folder}}"), '
        f'{model}.from_pretrained("{{folder}}"{options})]);'
    )
    text = json.dumps(f"{prompt}a text", ensure_ascii=False)
    given = '{ text_pair: "another text", truncation: true }' if is_pair else "{ truncation: true }"
    return f"{model}, AutoTokenizer", load, f"(await model(tokenizer({text}, {given}))).{output}.tolist()"


FILE = "config.pbtxt"

LARGEST_BATCH = 32
"""Rows that the server puts together at most; a rule of thumb, to be changed in the file."""

TYPES: Mapping[int, str] = {1: "TYPE_FP32", 6: "TYPE_INT32", 7: "TYPE_INT64", 9: "TYPE_BOOL", 10: "TYPE_FP16"}
"""Triton's names of ONNX's numbers for element types."""


def write_triton_config(graph: Path, variant: VariantInfo) -> None:
    """Write config.pbtxt beside an ONNX file."""
    import onnx

    model = onnx.load(graph, load_external_data=False).graph
    read = answers([each.name for each in model.output])
    outputs = [each for each in model.output if each.name in read]
    (graph.parent / FILE).write_text(triton_config(model.input, outputs, variant), encoding="utf-8")


def triton_config(inputs: Iterable[object], outputs: Iterable[object], variant: VariantInfo) -> str:
    """Return the configuration of a graph with these inputs and outputs (ONNX's `ValueInfoProto`).

    A variant whose answers depend on the batch gets one row at a time; of others the server puts requests together
    that have the same length, which is all that it does by itself. INT8 runs on the CPU.
    """
    alone = variant.batch_sensitive is not False
    parts = [
        'backend: "onnxruntime"',
        f"max_batch_size: {1 if alone else LARGEST_BATCH}",
        *(_tensor("input", each) for each in inputs),
        *(_tensor("output", each) for each in outputs),
    ]
    if not alone:
        parts.append("dynamic_batching { }")
    if variant.precision == "int8":
        parts.append("instance_group [ { kind: KIND_CPU } ]")
    return "\n".join(parts) + "\n"


def _tensor(role: str, value: object) -> str:
    tensor = value.type.tensor_type  # type: ignore[attr-defined]  # onnx has no types for its messages
    sizes = ", ".join(str(axis.dim_value or -1) for axis in tensor.shape.dim[1:])
    name = value.name  # type: ignore[attr-defined]
    return f'{role} [ {{ name: "{name}" data_type: {TYPES[tensor.elem_type]} dims: [ {sizes} ] }} ]'
