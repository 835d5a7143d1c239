"""optimum-onnx in an environment of its own: `python optimum_job.py JOB.json`, with nothing of compress imported.

The job has `model` (a plain folder), `settings` (an architecture, with `per-channel` and an optimization before it) and
`output`, a folder that receives model.onnx.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from optimum.onnxruntime import (
    ORTModelForSequenceClassification,
    ORTOptimizer,
    ORTQuantizer,
)
from optimum.onnxruntime.configuration import (
    AutoOptimizationConfig,
    AutoQuantizationConfig,
)


def main() -> None:
    """Export, optimize where that is asked for, and quantize dynamically."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "exported"
        ORTModelForSequenceClassification.from_pretrained(job["model"], export=True).save_pretrained(folder)
        settings = job["settings"]
        if settings.startswith("O2-"):
            settings, optimized = settings.removeprefix("O2-"), Path(scratch) / "optimized"
            ORTOptimizer.from_pretrained(folder).optimize(
                save_dir=optimized, optimization_config=AutoOptimizationConfig.O2()
            )
            folder = optimized
        architecture, _, per_channel = settings.partition("-")
        configure = getattr(AutoQuantizationConfig, architecture)
        configuration = configure(is_static=False, per_channel=bool(per_channel))
        file = next(path.name for path in folder.glob("*.onnx"))
        ORTQuantizer.from_pretrained(folder, file_name=file).quantize(
            save_dir=Path(scratch) / "quantized", quantization_config=configuration
        )
        made = next((Path(scratch) / "quantized").glob("*.onnx"))
        shutil.copyfile(made, Path(job["output"]) / "model.onnx")


if __name__ == "__main__":
    main()
