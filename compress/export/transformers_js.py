"""How transformers.js finds an exported model, and the lines that run it in Node.js and in a browser.

Without options it asks for `onnx/model.onnx` on a CPU and for `onnx/model_quantized.onnx` in WebAssembly. The dtype in
config.json names the file for both, whatever the precision inside. Which folder the file is in no config.json says: an
export with the model beside its config.json is loaded with `subfolder: ""`.
"""

from __future__ import annotations

import json
from pathlib import Path

from compress.data.tokenizer import read_json
from compress.model_info import FolderInfo, TaskInfo
from compress.runtime.model_formats import find_graph
from compress.runtime_releases import WEB, why_not_in
from compress.tasks import kind_of

VERSION = "4.3.1"
"""The one that the lines were tried with."""

DTYPES = {"model.onnx": "fp32", "model_quantized.onnx": "q8"}
"""What transformers.js calls the precision of files with these names."""

KEY = "transformers.js_config"

FUNCTIONS = {"text-classification": "classify", "token-classification": "tag", "question-answering": "answer"}
"""Pipelines of transformers.js whose outputs are those of our tasks, and what the lines call them."""

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


def transformers_js_section(info: FolderInfo, file: str, folder: str = "FOLDER") -> str:
    """Return the section of a README with the lines; of a file that does not run in browsers, with the reason.

    Args:
        info: the folder's.
        file: the model's, within the folder.
        folder: its name.
    """
    variant, task = info.variant, info.task
    if variant is None or task is None or variant.format not in ("onnx", "web"):
        return ""
    lines = _lines(task, file)
    if lines is None:
        return ""
    names, load, shown = lines
    parts = [
        "## In JavaScript",
        f"transformers.js {VERSION} loads this folder. In Node.js, run beside it:",
        f"```js\n{NODE.format(names=names, load=load.format(folder=f'./{folder}'), shown=shown)}\n```",
    ]
    if reason := why_not_in(WEB, variant.format, variant.operators):
        return "\n\n".join([*parts, f"In a browser it does not run there: {reason}."])
    page = BROWSER.format(names=names, version=VERSION, load=load.format(folder=folder), shown=shown)
    return "\n\n".join([*parts, "In a page beside it, from any server of files:", f"```html\n{page}\n```"])


def _lines(task: TaskInfo, file: str) -> tuple[str, str, str] | None:
    """Return what is imported, the line that loads the model, and the expression that is shown."""
    kind, options = kind_of(task), "" if file.startswith("onnx/") else ', { subfolder: "" }'
    options = options.replace("{", "{{").replace("}", "}}")
    function = FUNCTIONS.get(kind.hub_pipeline)
    if kind.hub_pipeline == "multiple-choice":
        return None
    is_pair = (len(task.text) > 1 or kind.is_variadic) and kind.hub_pipeline != "sentence-similarity"
    texts = '"a question", "a context"' if kind.hub_pipeline == "question-answering" else '"a text"'
    if function and task.kind != "regression" and (not is_pair or kind.hub_pipeline == "question-answering"):
        load = f'const {function} = await pipeline("{kind.hub_pipeline}", "{{folder}}"{options});'
        return "pipeline", load, f"await {function}({texts})"
    model, output = OUTPUTS.get(kind.hub_pipeline, ("AutoModelForSequenceClassification", "logits"))
    load = (
        f'const [tokenizer, model] = await Promise.all([AutoTokenizer.from_pretrained("{{folder}}"), '
        f'{model}.from_pretrained("{{folder}}"{options})]);'
    )
    read = '"a text", { text_pair: "another text", truncation: true }' if is_pair else '"a text", { truncation: true }'
    return f"{model}, AutoTokenizer", load, f"(await model(tokenizer({read}))).{output}.tolist()"
