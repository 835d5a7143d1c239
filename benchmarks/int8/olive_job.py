"""Olive in an environment of its own: `python olive_job.py JOB.json`, with nothing of compress imported.

The job has `model` (a plain folder), `settings` (`dynamic`, or `transformer-fusion-dynamic` with its optimizer for
transformers before) and `output`, a folder that receives model.onnx.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import olive.workflows  # type: ignore[import-not-found]


def main() -> None:
    """Run the passes."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    passes = {"convert": {"type": "OnnxConversion", "target_opset": 17}}
    if job["settings"].startswith("transformer-fusion"):
        passes["fuse"] = {"type": "OrtTransformersOptimization", "model_type": "bert", "opt_level": 0}
    passes["quantize"] = {"type": "OnnxDynamicQuantization"}
    with tempfile.TemporaryDirectory() as scratch:
        olive.workflows.run(
            {
                "input_model": {"type": "HfModel", "model_path": job["model"], "task": "text-classification"},
                "passes": passes,
                "output_dir": str(Path(scratch) / "made"),
                "cache_dir": str(Path(scratch) / "cache"),
                "log_severity_level": 3,
            }
        )
        made = next((Path(scratch) / "made").rglob("*.onnx"))
        shutil.copyfile(made, Path(job["output"]) / "model.onnx")


if __name__ == "__main__":
    main()
