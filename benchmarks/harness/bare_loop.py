"""A bare loop around `session.run`, without the harness: median milliseconds of a call as one line of JSON.

A separate program that imports nothing of the harness:
`python bare_loop.py model.onnx THREADS CALLS name=input.npy ...`
"""

import json
import statistics
import sys
import time

import numpy as np
import onnxruntime

WARM_CALLS = 20


def main(arguments: list[str]) -> None:
    """Time one model and write the result to stdout."""
    model, threads, calls, *inputs = arguments
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    named = (pair.partition("=") for pair in inputs)
    feed = {name: np.load(path) for name, _, path in named}
    for _ in range(WARM_CALLS):
        session.run(None, feed)
    times = []
    for _ in range(int(calls)):
        start = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - start)
    sys.stdout.write(json.dumps({"milliseconds": statistics.median(times) * 1e3, "calls": len(times)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
