"""Makes a folder that is served as it is: transformers.js' layout, the runtime, a page with the model, a README."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime

from compress.data.tokenizer import TextTokenizer, read_json
from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.runners import export_readme
from compress.export.web.node_check import check_in_node, shortened
from compress.export.web.npm_assets import PACKAGES, archive_of, unpack_assets
from compress.export.write_variant import write_variant
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo, TaskInfo, find_info, read_info
from compress.model_folder.sentence_transformers_files import default_prompt, task_of_folder
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import existing_onnx
from compress.storage.atomic_write import copy_content
from compress.storage.file_digests import combined_digest, file_digest
from compress.tasks import kind_of

INT8_FILE, FP32_FILE = FORMATS["web"].files

PAGE = Path(__file__).with_name("page")
OF_THE_FILE = ("precision", "method", "session", "portable", "fp32_layers", "batch_sensitive")
"""What compress.json says of the ONNX file, which stays the same."""
SERVICE_WORKER = "service_worker.js"
"""Stores the other files of the page in the browser."""


def export_web(context: BuildContext) -> FolderInfo:
    """Put an ONNX model, its tokenizer, the runtime and the page into one folder, and run it in Node.js.

    Args:
        context: of the build; its source is an ONNX folder, quantized or not; its settings may name ``assets``, a
            folder with the npm packages.

    Raises:
        ModelError: the model has no task, or cannot run in the browser's runtime.
    """
    base, graph = read_info(context.source), existing_onnx(context.source)
    check_buildable(context.source, context.settings)
    assert base.task is not None
    assert base.variant is not None  # the source is a variant itself
    if FORMATS["onnx"].weight_files(graph) != [graph]:
        raise ModelError(f"{graph} has weights in a file of their own, which the page does not load.")
    file = INT8_FILE if base.variant.precision == "int8" else FP32_FILE
    (context.work / file).parent.mkdir()
    shutil.copyfile(graph, context.work / file)
    assets = context.settings.get("assets")
    unpack_assets(context.work, Path(assets) if assets else None)
    stored = {name: getattr(base.variant, name) for name in OF_THE_FILE}
    context = replace(context, variant=context.variant.model_copy(update=stored))
    info, _ = write_variant(context, base, open_predictor(context.source))
    _write_page(context.work, base.task, file)
    (context.work / "README.md").write_text(
        web_readme(info, base.task, file, default_prompt(context.work)), encoding="utf-8"
    )
    is_rounded = base.variant.precision == "int8"
    parity = check_in_node(context.work, base.task, open_predictor(context.work), is_rounded=is_rounded)
    context.console.note(f"{context.variant.name}: {parity}")
    if parity.other_tokens:
        texts = ", ".join(map(shortened, parity.other_tokens))
        context.console.warn(f"{context.variant.name}: JavaScript has other tokens than Python for {texts}")
    for given, reason in parity.unread:
        context.console.warn(f"{context.variant.name}: JavaScript cannot read {shortened(given)}: {reason}")
    return info


def check_buildable(source: Path, settings: Mapping[str, Any]) -> None:
    """Refuse a model without a task, and a folder of npm packages that lacks one or holds another."""
    info = find_info(source)
    if (info.task if info else task_of_folder(source)) is None:
        raise ModelError(f"{source} does not state which task it was trained for, which the page must know.")
    if settings.get("assets"):
        for package in PACKAGES:
            archive_of(package, Path(settings["assets"]))


def _write_page(work: Path, task: TaskInfo, model: str) -> None:
    """Write what is beside the model: page, settings, licences, and last the list of files to store in the browser."""
    copy_content(PAGE, work)
    tokens = TextTokenizer.load(work)
    settings = {
        "model": model,
        "task": task.model_dump(),
        **({"prompt": prompt} if (prompt := default_prompt(work)) else {}),
        "tokenizer_config": read_json(work / "tokenizer_config.json"),
        "templates": {"single": tokens.template(is_pair=False), "pair": tokens.template(is_pair=True)},
    }
    _write_json(work / "page.json", settings)
    packages = {
        each.name: {"version": each.version, "licence": each.licence, "files": list(each.files.values())}
        for each in PACKAGES
    }
    _write_json(work / "licences" / "packages.json", packages)
    for name in ("LICENSE", "ThirdPartyNotices.txt"):  # of the same project; its npm package holds neither
        shutil.copyfile(Path(onnxruntime.__file__).parent / name, work / "licences" / f"onnxruntime-{name}")
    _write_file_list(work, model)


def _write_file_list(work: Path, model: str) -> None:
    """Write the names of the files that the page reads, for the service worker, and a digest of them."""
    page = [each.name for each in PAGE.iterdir() if each.name != SERVICE_WORKER]
    runtime = [name for package in PACKAGES for name in package.files.values() if name.startswith("runtime/")]
    names = sorted([*page, *runtime, "page.json", "tokenizer.json", model])
    version = combined_digest({name: file_digest(work / name) for name in names})
    script = f'const VERSION = "{version}";\nconst FILES = {json.dumps(["./", *names], indent=2)};\n'
    (work / "files.js").write_text(script, encoding="utf-8")


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


SERVED = """\
## As it is

    python -m http.server 8000

and http://localhost:8000 predicts what one types there. Any server of static files will do.
"""

OWN = """\
## In a page of your own

A page in this folder that prints what `compress predict` does{difference}:
"""

SCRIPT = """\
<script type="module">
  import {{ Model }} from "./model.js";
  const read = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
  const model = await Model.load(read);
  const {{ prediction }} = await model.predict({texts});
  document.body.textContent = JSON.stringify(prediction);
</script>"""


def web_readme(info: FolderInfo, task: TaskInfo, file: str, prompt: str = "") -> str:
    """Return the README.md of the folder with this compress.json, whose model is ``file``."""
    kind = kind_of(task)
    count = 3 if kind.is_variadic else len(task.text)
    texts = json.dumps(["a text", "another text", "a third one"][:count])
    script = SCRIPT.format(texts=texts)
    own = OWN.format(difference=kind.web_difference)
    return "\n".join([export_readme(info, file, prompt), SERVED, own, f"```html\n{script}\n```", ""])
