"""The environments of the tools, created once in the cache folder, and what each tool reads of our exports."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from benchmarks.distill_throughput.environments import BASE, DONE, Environment, NotInstalled
from compress.export.comparison.parity import TOLERANCE
from compress.export.web.node_check import INT8_TOLERANCE
from compress.storage.file_names import cache_folder
from tests.other_tools.trained_models import MODELS

TRANSFORMERS_4 = Environment(
    "tools-transformers-4",
    (
        *BASE,
        "transformers==4.57.6",
        "onnxruntime==1.31.1",
        "onnx==1.23.2",
        "openvino==2026.4.1",
        "optimum-onnx==0.1.0",
        "optimum-intel==1.27.0",
        "sentence-transformers==5.7.0",
    ),
)
"""optimum-onnx needs transformers before 4.58."""
TRANSFORMERS_5 = Environment(
    "tools-transformers-5",
    (*BASE, "openvino==2026.4.1", "optimum-intel==2.2.0", "sentence-transformers==6.2.0"),
    removed=("torchvision",),
)
"""optimum-intel 2.2 needs transformers before 5.6, and imports torchvision for models of images alone. The ONNX backend
of sentence-transformers 6.2 needs optimum-onnx, which refuses transformers 5."""
TOKENIZERS = Environment("tools-tokenizers", ("tokenizers==0.22.2", "onnxruntime==1.31.1", "numpy==2.4.6"))
TRANSFORMERS_JS = "4.3.1"

HEADS: Mapping[str, str] = {
    "classification": "SequenceClassification",
    "pairs": "SequenceClassification",
    "multi_label": "SequenceClassification",
    "regression": "SequenceClassification",
    "ranking": "SequenceClassification",
    "multiple_choice": "SequenceClassification",
    "token_classification": "TokenClassification",
    "question_answering": "QuestionAnswering",
}
"""By task kind, the end of the name of the class that opens its exports; each choice of a question is a row."""
ORT_CLASSES = {kind: f"ORTModelFor{head}" for kind, head in HEADS.items()}
OV_CLASSES = {kind: f"OVModelFor{head}" for kind, head in HEADS.items()}
JS_CLASSES = {kind: f"AutoModelFor{head}" for kind, head in HEADS.items()}
EMBEDDING_KINDS = ("similarity", "retrieval")
SBERT_CLASSES = dict.fromkeys(EMBEDDING_KINDS, "SentenceTransformer") | {"ranking": "CrossEncoder"}


TOLERANCES: Mapping[str, float] = {
    "onnx-fp32": TOLERANCE,
    "onnx-int8": 0.02,
    "openvino-fp32": TOLERANCE,
    "openvino-int8": 0.02,
}
"""By variant, how much outputs may differ, as a share of the largest one. The last bits of an input decide between two
integers in INT8."""


@dataclass(frozen=True)
class Tool:
    """A tool, and what opens the exports of each task kind in it."""

    variants: tuple[str, ...]
    """Those that it reads."""
    opens: Mapping[str, str]
    job: str
    environment: Environment | None = None
    """None: node packages."""
    options: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = MODELS
    """Those that it is given: fewer where another tool differs by little."""
    batches: bool = True
    """Whether it pads batches itself."""
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Where they are not the usual ones."""
    in_javascript: bool = False
    """Whether its tokenizer is transformers.js': it cuts long rows at the end of all tokens (the last special one too,
    and the second of two texts), and takes an empty second text for none."""

    def runs(self, kind: str, model: str, variant: str) -> bool:
        """Return whether it is given this export."""
        return kind in self.opens and model in self.models and variant in self.variants


ONNX, OPENVINO = ("onnx-fp32", "onnx-int8"), ("openvino-fp32", "openvino-int8")
TOOLS: Mapping[str, Tool] = {
    "optimum-onnx 0.1.0": Tool(
        ONNX,
        ORT_CLASSES
        | dict.fromkeys(EMBEDDING_KINDS, "ORTModelForCustomTasks")
        | {"encoder": "ORTModelForFeatureExtraction"},
        "optimum_job.py",
        TRANSFORMERS_4,
    ),
    "optimum-intel 1.27.0": Tool(
        OPENVINO,
        OV_CLASSES
        | dict.fromkeys(EMBEDDING_KINDS, "OVModelForCustomTasks")
        | {"encoder": "OVModelForFeatureExtraction"},
        "optimum_job.py",
        TRANSFORMERS_4,
        models=("pruned",),
    ),
    "optimum-intel 2.2.0": Tool(
        OPENVINO,
        OV_CLASSES
        | dict.fromkeys(EMBEDDING_KINDS, "OVModelForCustomTasks")
        | {"encoder": "OVModelForFeatureExtraction"},
        "optimum_job.py",
        TRANSFORMERS_5,
    ),
    "sentence-transformers 5.7.0": Tool(ONNX + OPENVINO, SBERT_CLASSES, "sentence_transformers_job.py", TRANSFORMERS_4),
    "sentence-transformers 6.2.0": Tool(OPENVINO, SBERT_CLASSES, "sentence_transformers_job.py", TRANSFORMERS_5),
    "tokenizers 0.22.2": Tool(
        ONNX, dict.fromkeys((*HEADS, *EMBEDDING_KINDS, "encoder"), ""), "tokenizers_job.py", TOKENIZERS, batches=False
    ),
    "transformers.js 4.3.1 (node)": Tool(
        ONNX,
        JS_CLASSES | dict.fromkeys((*EMBEDDING_KINDS, "encoder"), "AutoModel"),
        "transformers_js_job.mjs",
        options={"subfolder": ""},
        in_javascript=True,
    ),
    "transformers.js 4.3.1 (Chromium)": Tool(
        ONNX,
        JS_CLASSES | dict.fromkeys((*EMBEDDING_KINDS, "encoder"), "AutoModel"),
        "transformers_js_job.mjs",
        options={"subfolder": ""},
        models=("teacher", "pruned"),
        tolerances={"onnx-int8": INT8_TOLERANCE},
        in_javascript=True,
    ),
}


def installed(environment: Environment) -> Path:
    """Return the interpreter of an environment, which one process installs while others wait."""
    with _hold(environment.name):
        environment.install()
    return environment.python


def node_packages() -> Path:
    """Return the folder with transformers.js and what it needs, among that ONNX Runtime for Node.js and the web."""
    folder = cache_folder() / "other-tools" / f"transformers.js-{TRANSFORMERS_JS}"
    if shutil.which("npm") is None:
        raise NotInstalled("npm is not installed")
    with _hold(folder.name):
        if not (folder / DONE).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            # Scripts would fetch files from elsewhere; ONNX Runtime's for this processor are in its package.
            command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
            package = f"@huggingface/transformers@{TRANSFORMERS_JS}"
            done = subprocess.run([*command, package], capture_output=True, text=True, check=False, timeout=600)
            if done.returncode:
                raise NotInstalled(f"{package} cannot be installed: {done.stderr.strip()[-300:]}")
            (folder / DONE).touch()
    return folder / "node_modules"


def _hold(name: str) -> FileLock:
    locks = cache_folder() / "other-tools"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / f"{name}.lock")
