"""README.md of a web folder: how it is served, and how another page uses its model."""

from __future__ import annotations

import json

from compress.export.runners.export_readme import export_readme
from compress.model_info import FolderInfo, TaskInfo
from compress.tasks import kind_of

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


DIFFERENCES = {
    "token_classification": ", without `entities`",
    "question_answering": ", with an answer of whole words and without `start` and `end`",
}
"""Kinds of tasks whose predictions are not quite those of Python."""


def web_readme(info: FolderInfo, task: TaskInfo, file: str) -> str:
    """Return the README.md of the folder with this compress.json, whose model is ``file``."""
    count = 3 if kind_of(task).is_variadic else len(task.text)
    texts = json.dumps(["a text", "another text", "a third one"][:count])
    script = SCRIPT.format(texts=texts)
    own = OWN.format(difference=DIFFERENCES.get(task.kind, ""))
    return "\n".join([export_readme(info, file), SERVED, own, f"```html\n{script}\n```", ""])
