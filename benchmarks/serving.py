"""`python -m benchmarks.serving NAME=FOLDER… --texts FILE:COLUMN`: what the service adds, and what it does under load.

Each model is served by `compress serve`, and by a service written by hand (Starlette around the same file, rows one by
one in a thread), each as a process of its own on loopback; clients are another. First one caller: the answer's time
beside that of the model alone. Then callers that wait for their answers, until more of them get no more: the capacity.
Then requests that come at a share of the capacity whether or not others are answered: answers a second, p50, p99,
refusals, lost and wrong answers. Last the memory after many requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.bulk import read_texts
from benchmarks.markdown_page import machine, origin, table
from benchmarks.report_store import Report, Store, beginning, carry_out, positive, run
from compress.console import Console
from compress.measure.result_base import ResultModel
from compress.runtime.text_model import TextModel

BY_HAND = """
import sys, anyio, compress, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
model = compress.open(sys.argv[1])

async def predict(request):
    texts = (await request.json())["texts"]
    return JSONResponse({"answers": await anyio.to_thread.run_sync(model.predict, texts, 1)})

app = Starlette(routes=[Route(sys.argv[2], predict, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[3]), log_level="error")
"""
OURS, HAND = "compress serve", "Starlette by hand"
CALLERS = (1, 2, 4, 8, 16, 32)
MORE = 1.03
"""How many times the rate of fewer callers more of them must reach."""
LOADS = (0.25, 0.5, 1.0, 2.0, 4.0)
PORT = 18_200
HTTP_OK = 200
COLUMNS = (
    "model",
    "service",
    "load",
    "answers a second",
    "p50 ms",
    "p99 ms",
    "refused",
    "lost",
    "wrong",
    "p99 of refusals ms",
)


class Load(ResultModel):
    """One load on one service."""

    model: str
    service: str
    load: str
    seconds: float
    answered: int
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    p50: float | None = None
    p99: float | None = None
    refusal_p99: float | None = None

    @property
    def key(self) -> str:
        """Its name in the report."""
        return f"{self.model} {self.service} {self.load}"


class ServingReport(Report):
    """The results."""

    about: str = "serving"
    loads: tuple[Load, ...] = ()
    alone: Mapping[str, float] = {}
    """Milliseconds of the model alone, text to answer, by its name."""
    memory: Mapping[str, tuple[float, float]] = {}
    """Megabytes before and after the requests, by model."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; 130 where it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--texts", required=True, metavar="FILE:COLUMN")
    parser.add_argument("--seconds", type=positive, default=10)
    parser.add_argument("--requests", type=positive, default=100_000, help="of the memory test")
    parser.add_argument("--out", type=Path, default=Path("reports/serving"))
    given = parser.parse_args(arguments)
    store = Store(ServingReport(**beginning("python -m benchmarks.serving", trial=False)), given.out, page)
    return carry_out(store, Console("human"), partial(measure, store, given), show)


def measure(store: Store[ServingReport], given: argparse.Namespace, work: Path) -> None:
    """Measure every model."""
    texts = list(read_texts(given.texts))[:500]
    for named in given.models:
        name, _, place = named.partition("=")
        folder = Path(place)
        model = TextModel.open(folder)
        expected = model.predict(texts, batch=1)
        times = []
        for text in texts[:200]:
            start = time.perf_counter()
            model.predict([text], batch=1)
            times.append(1e3 * (time.perf_counter() - start))
        store.update(alone={**store.report.alone, name: float(np.median(times))})
        for service in (OURS, HAND):
            with served(service, name, folder) as process:
                calls = Calls(name, texts, [answer_key(each) for each in expected], given.seconds)
                best = 0.0
                for callers in CALLERS:
                    found = call(replace(calls, callers=callers), service, f"callers: {callers}")
                    add(store, found)
                    rate = found.answered / found.seconds
                    if rate < MORE * best:
                        break
                    best = max(best, rate)
                for load in LOADS:
                    add(store, call(replace(calls, rate=load * best), service, f"{load:g} × capacity"))
                if service == OURS:
                    before = process.memory_full_info().uss / 1e6
                    many = replace(calls, expected=(), seconds=given.requests / best, callers=8)
                    call(many, service, "memory")
                    after = process.memory_full_info().uss / 1e6
                    store.update(memory={**store.report.memory, name: (before, after)})


def add(store: Store[ServingReport], load: Load) -> None:
    """Store a result."""
    store.update(loads=(*(each for each in store.report.loads if each.key != load.key), load))


def answer_key(answer: dict[str, object]) -> str:
    """Return what makes two answers the same: all but the last digits of numbers."""
    return json.dumps({name: round(value, 4) if isinstance(value, float) else value for name, value in answer.items()})


@contextmanager
def served(service: str, name: str, folder: Path) -> Iterator[psutil.Process]:
    """Start a service and wait until it answers."""
    ours = [sys.executable, "-m", "compress", "serve", f"{name}={folder}", "--port", str(PORT)]
    hand = [sys.executable, "-c", BY_HAND, str(folder), f"/models/{name}/predict", str(PORT)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    log = subprocess.DEVNULL
    with subprocess.Popen(ours if service == OURS else hand, stdout=log, stderr=log, env=environment) as process:
        try:
            deadline = time.monotonic() + 120
            while not asyncio.run(_answers(name)) and time.monotonic() < deadline:
                time.sleep(0.2)
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


async def _answers(name: str) -> bool:
    try:
        connection = await asyncio.open_connection("127.0.0.1", PORT)
        status, _ = await _call(*connection, _request(name, "a text"))
        connection[1].close()
        return status == HTTP_OK
    except OSError:
        return False


@dataclass(frozen=True)
class Calls:
    """What a client does."""

    name: str
    texts: Sequence[str]
    expected: Sequence[str]
    """Keys of the right answers; none: they are not compared."""
    seconds: float
    callers: int | None = None
    """Each calls again when it has its answer."""
    rate: float = 0.0
    """Requests a second, where there are no callers."""


def call(calls: Calls, service: str, load: str) -> Load:
    """Call from a process of its own."""
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe()
    process = context.Process(target=_client, args=(ours, calls))
    process.start()
    facts = theirs.recv()
    process.join()
    return Load(model=calls.name, service=service, load=load, **facts)


def _client(pipe: Any, calls: Calls) -> None:
    pipe.send(asyncio.run(Client(calls).run()))


class Client:
    """Sends requests and records what came of them."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._requests = [_request(calls.name, text) for text in calls.texts]
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._draw = random.Random(0)
        self._times: list[float] = []
        self._refusals: list[float] = []
        self._lost = self._wrong = 0

    async def run(self) -> dict[str, Any]:
        """Call for so many seconds; return the counts."""
        start = time.perf_counter()
        end = start + self._calls.seconds
        if self._calls.callers is not None:
            await asyncio.gather(*(self._caller(end) for _ in range(self._calls.callers)))
        else:
            tasks, due = [], start
            while due < end:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                tasks.append(asyncio.create_task(self._once(due)))
                due += self._draw.expovariate(self._calls.rate)
            await asyncio.gather(*tasks)
        for _, writer in self._idle:
            writer.close()
        p50, p99 = np.percentile(self._times, [50, 99]).tolist() if self._times else (None, None)
        return {
            "seconds": time.perf_counter() - start,
            "answered": len(self._times),
            "refused": len(self._refusals),
            "lost": self._lost,
            "wrong": self._wrong,
            "p50": p50,
            "p99": p99,
            "refusal_p99": float(np.percentile(self._refusals, 99)) if self._refusals else None,
        }

    async def _caller(self, end: float) -> None:
        while time.perf_counter() < end:
            await self._once(time.perf_counter())

    async def _once(self, came: float) -> None:
        number = self._draw.randrange(len(self._requests))
        connection = None
        try:
            connection = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", PORT)
            status, body = await _call(*connection, self._requests[number])
            self._idle.append(connection)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            if connection is not None:
                connection[1].close()
            self._lost += 1
            return
        took = 1e3 * (time.perf_counter() - came)
        if status != HTTP_OK:
            self._refusals.append(took)
            return
        self._times.append(took)
        expected = self._calls.expected
        if expected and answer_key(json.loads(body)["answers"][0]) != expected[number]:
            self._wrong += 1


def _request(name: str, text: str) -> bytes:
    body = json.dumps({"texts": [text]}).encode()
    head = f"POST /models/{name}/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


def page(report: ServingReport) -> str:
    """Return the page in Markdown."""
    added = [
        f"- {each.model}, {each.service}: {each.p50:.2f} ms, the model alone {report.alone[each.model]:.2f} ms"
        for each in report.loads
        if each.load == "callers: 1" and each.p50
    ]
    memory = [f"- {name}: {one:,.0f} MB before, {two:,.0f} MB after" for name, (one, two) in report.memory.items()]
    blocks = [
        "# The service under load",
        origin(report),
        "Client and service share the machine. `lost`: neither answered nor refused. `wrong`: another answer than"
        " `predict --batch 1` gives.",
        table(rows_of(report), COLUMNS, COLUMNS[3:]),
        "## What the service adds",
        "\n".join(added),
        "## Memory",
        "\n".join(memory),
    ]
    return "\n\n".join([*blocks, machine(report)]) + "\n"


def rows_of(report: ServingReport) -> Iterator[dict[str, str | None]]:
    """Yield the rows of the table."""
    for each in report.loads:
        yield {
            "model": each.model,
            "service": each.service,
            "load": each.load,
            "answers a second": f"{each.answered / each.seconds:,.0f}",
            "p50 ms": f"{each.p50:.2f}" if each.p50 else None,
            "p99 ms": f"{each.p99:.2f}" if each.p99 else None,
            "refused": f"{each.refused:,}",
            "lost": f"{each.lost:,}",
            "wrong": f"{each.wrong:,}",
            "p99 of refusals ms": f"{each.refusal_p99:.1f}" if each.refusal_p99 else None,
        }


def show(report: ServingReport, console: Console) -> None:
    """Print the table."""
    console.table(list(rows_of(report)), COLUMNS)


if __name__ == "__main__":
    run(main)
