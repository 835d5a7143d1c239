"""One model in a process of its own, timed on command: JSON lines in on stdin, JSON lines out on stdout.

It is told what to open (``WorkerSpec``), answers when the model is warm, and then takes turns until told to close. It
loads nothing but what its own model needs: an exported model is timed without torch in the process.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING

from compress.errors import CompressError, ModelError, NotHere
from compress.folder import VariantInfo, read_info
from compress.measure.messages import Order, Reply, WorkerSpec
from compress.measure.workload import fixed_arrays
from compress.runtime.predictor import Place, Predictor
from compress.tasks.kind import Arrays

if TYPE_CHECKING:
    from compress.runtime.text import TextModel

WARM_SECONDS = 4.0
"""Warm-up ends here even where passes still get faster."""
WARM_PASSES = 3
STEADY = 0.05
"""Warm-up also ends when a pass differs by less than this from the one before."""


@dataclass(frozen=True)
class Opened:
    """A model with its inputs made ready."""

    predictor: Predictor
    run_model: Callable[[int], object]
    run_end_to_end: Callable[[int], object] | None


def open_model(spec: WorkerSpec) -> Opened:
    """Open the model and prepare its calls."""
    folder, place = Path(spec.folder), Place(spec.device, spec.threads)
    if spec.length is not None:
        from compress.runtime import open_predictor

        bare = open_predictor(folder, place, spec.variant)
        arrays = fixed_arrays(folder, spec.batch, spec.length, spec.seed)
        return Opened(bare, lambda _: bare.predict(arrays), None)

    texts = open_texts(folder, place, spec.variant)
    tokenized: dict[int, Arrays] = {}

    def run_model(call: int) -> object:
        if call not in tokenized:
            tokenized[call] = texts.tokenize(list(spec.calls[call]))
        return texts.run(tokenized[call])

    def run_end_to_end(call: int) -> object:
        return texts.decode(texts.run(texts.tokenize(list(spec.calls[call]))))

    return Opened(texts.predictor, run_model, run_end_to_end)


def open_texts(folder: Path, place: Place, variant: VariantInfo | None) -> TextModel:
    """Everything between texts and answers, in one variant of the folder."""
    from compress.data.tokens import Tokens
    from compress.runtime import open_predictor
    from compress.runtime.text import TextModel
    from compress.tasks import kind_of

    task = read_info(folder).task
    if task is None:
        raise ModelError(f"{folder} does not say which task it answers; only a fixed length can be timed.")
    return TextModel(task, kind_of(task), Tokens.load(folder), open_predictor(folder, place, variant))


def timed(run: Callable[[int], object], calls: Sequence[int]) -> list[float]:
    """Milliseconds of each call of one pass. A call returns host arrays, so nothing is left running when it returns."""
    times = []
    for call in calls:
        start = time.perf_counter()
        run(call)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def passes(run: Callable[[int], object], calls: Sequence[int], seconds: float) -> list[float]:
    """Whole passes over ``calls`` until ``seconds`` are over: each call counts as often as any other."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        times += timed(run, calls)
    return times


def warm_up(run: Callable[[int], object], calls: Sequence[int]) -> float:
    """Run until the time of a pass is steady; returns the seconds of a call."""
    end = time.perf_counter() + WARM_SECONDS
    seen = [sum(timed(run, calls))]
    while time.perf_counter() < end and (len(seen) < WARM_PASSES or abs(seen[-1] / seen[-2] - 1.0) > STEADY):
        seen.append(sum(timed(run, calls)))
    return median(seen[-2:]) / len(calls) / 1e3


def take_turn(opened: Opened, order: Order) -> Reply:
    """One turn: the model alone, and then from text to answer where there are texts."""
    gc.collect()
    both = opened.run_end_to_end is not None
    seconds = order.seconds / (1 + both)
    for call in order.calls:  # tokenizes what this turn needs, and touches every length once
        opened.run_model(call)
    alone = passes(opened.run_model, order.calls, seconds)
    full = passes(opened.run_end_to_end, order.calls, seconds) if opened.run_end_to_end else []
    return Reply(model=tuple(alone), end_to_end=tuple(full))


def peak_memory() -> int | None:
    """The most memory this process has held, in bytes.

    On Linux from /proc: what getrusage tells there begins with the size of the process that started this one.
    """
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return None
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def device_memory(device: str) -> int | None:
    """The most memory torch has held on the accelerator; None where torch did not run there."""
    torch = sys.modules.get("torch")
    if device != "cuda" or torch is None:
        return None
    return int(torch.cuda.max_memory_allocated())


def serve(orders: IO[str], answer: Callable[[Reply], None]) -> None:
    """Open what the first line tells of and take turns until told to close or left alone."""
    spec = WorkerSpec.model_validate_json(orders.readline())
    if spec.cores is not None and sys.platform == "linux":
        os.sched_setaffinity(0, spec.cores)
    gc.disable()  # a collection in the middle of a call would count as the model's time
    start = time.perf_counter()
    opened = open_model(spec)
    loaded = time.perf_counter() - start
    seconds = warm_up(opened.run_model, spec.warm)
    answer(Reply(load_seconds=loaded, call_seconds=seconds, runs_with=opened.predictor.describe()))
    for line in orders:
        order = Order.model_validate_json(line)
        if order.do == "close":
            answer(Reply(peak_memory=peak_memory(), device_memory=device_memory(spec.device)))
            return
        answer(take_turn(opened, order))


def main() -> None:
    """Serve on this process's own stdin and stdout; whatever libraries print goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(reply: Reply) -> None:
        replies.write(reply.model_dump_json() + "\n")
        replies.flush()

    try:
        serve(sys.stdin, answer)
    except NotHere as error:
        answer(Reply(refused=error.message))
    except CompressError as error:
        answer(Reply(failed=error.message))


if __name__ == "__main__":
    main()
