"""Runs the job of transformers.js in Chromium, from a folder that this computer serves."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chromium import chromium, serve_folder

PAGE = "<!doctype html><title>transformers.js</title>"
RUN = """
const [cases, done] = arguments;
(async () => {
  const transformers = await import("/transformers/transformers.js");
  const { answers } = await import("/transformers_js_job.mjs");
  transformers.env.allowRemoteModels = false;
  transformers.env.allowLocalModels = true;
  transformers.env.useBrowserCache = false;
  const name = "/onnxruntime/ort-wasm-simd-threaded.asyncify";
  transformers.env.backends.onnx.wasm.wasmPaths = { mjs: `${name}.mjs`, wasm: `${name}.wasm` };
  done(await answers(transformers, cases));
})().catch((error) => done(String(error)));
"""
"""Files come from this computer: the models, and ONNX Runtime's, which come from a network of copies by default."""
SECONDS = 600


def run_in_chromium(packages: Path, script: Path, cases: Sequence[dict[str, Any]], file: Path) -> None:
    """Answer cases, whose folders are below that of ``file``, and write the answers into ``file``."""
    with tempfile.TemporaryDirectory(dir=file.parent) as name:
        root = Path(name)
        (root / "index.html").write_text(PAGE, encoding="utf-8")
        shutil.copyfile(script, root / script.name)
        (root / "transformers").symlink_to(packages / "@huggingface/transformers/dist")
        (root / "onnxruntime").symlink_to(packages / "onnxruntime-web/dist")
        (root / "models").symlink_to(file.parent)
        address, stop = serve_folder(root)
        try:
            with chromium(root) as browser:
                browser.set_script_timeout(SECONDS)
                browser.get(address)
                below = [
                    {**case, "folder": f"/models/{Path(case['folder']).relative_to(file.parent)}"} for case in cases
                ]
                answers = []
                for case in below:  # one by one: a command of the driver has two minutes
                    result = browser.execute_async_script(RUN, [case])
                    assert isinstance(result, list), result
                    answers += result
        finally:
            stop()
    file.write_text(json.dumps(answers), encoding="utf-8")
