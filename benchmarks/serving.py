"""`python -m benchmarks.serving NAME=FOLDER… --texts FILE:COLUMN`: what the service adds, and what it does under load.

Each model is served by `compress serve` and by what others use (`other_servers.py`, each in an environment of its own
that is made first), each as a process of its own on loopback; clients are another. First one caller: the answer's time
beside that of the model alone. Then callers that wait for their answers, until more of them get no more: the capacity.
Then requests that come at a share of the capacity whether or not others are answered: answers a second, p50, p99,
refusals, lost and wrong answers. Last the memory after many requests. A killed benchmark goes on where it stopped.
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
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.bulk import read_texts
from benchmarks.markdown_page import machine, origin, table
from benchmarks.other_servers import OTHER_SERVERS, OtherServer
from benchmarks.report_store import Report, Store, beginning, carry_out, positive, run
from compress.console import Console
from compress.errors import CompressError
from compress.measure.result_base import ResultModel
from compress.runtime.text_model import TextModel

OURS = {"compress serve": 1, "compress serve, 2 threads": 2}
"""Ours by name, and its threads."""
CALLERS = (1, 2, 4, 8, 16, 32)
MORE = 1.03
"""How many times the rate of fewer callers more of them must reach."""
LOADS = (0.25, 0.5, 1.0, 2.0, 4.0)
PORT = 18_200
START_SECONDS = 180.0
LATE = 0.002
"""Seconds by which timers of a loop are late; a request that is sent later counts from when it was due."""
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
    parser.add_argument("--pytorch", metavar="FOLDER", help="the model of the pipeline; without it there is none")
    parser.add_argument("--environments", type=Path, metavar="DIR", help="of other servers; without it there are none")
    parser.add_argument("--requests", type=positive, default=100_000, help="of the memory test")
    parser.add_argument("--out", type=Path, default=Path("reports/serving"))
    given = parser.parse_args(arguments)
    store = Store(ServingReport(**beginning("python -m benchmarks.serving", trial=False)), given.out, page)
    store.resume()
    return carry_out(store, Console("human"), partial(measure, store, given), show)


def measure(store: Store[ServingReport], given: argparse.Namespace, work: Path) -> None:
    """Measure every model."""
    texts = list(read_texts(given.texts))[:500]
    for named in given.models:
        name, _, place = named.partition("=")
        folder = Path(place)
        model = TextModel.open(folder)
        calls = Calls(name, texts, model.predict(texts, batch=1), given.seconds)
        if name not in store.report.alone:
            times = [1e3 * timed(model, text) for text in texts[:200]]
            store.update(alone={**store.report.alone, name: float(np.median(times))})
        for service, other in services(given).items():
            last = f"{LOADS[-1]:g} × capacity"
            if any((each.model, each.service, each.load) == (name, service, last) for each in store.report.loads):
                continue
            source = Path(given.pytorch) if other and other.reads_torch else folder
            these = replace(calls, expected=()) if other and other.reads_torch else calls
            with served(service, other, name, source, given.environments, work) as process:
                capacity = under_load(store, these, service)
                if service == next(iter(OURS)):
                    before = process.memory_full_info().uss / 1e6
                    many = replace(calls, expected=(), seconds=given.requests / capacity, callers=8)
                    call(many, service, "memory")
                    after = process.memory_full_info().uss / 1e6
                    store.update(memory={**store.report.memory, name: (before, after)})


def services(given: argparse.Namespace) -> dict[str, OtherServer | None]:
    """Return ours and the others that can be run."""
    others = OTHER_SERVERS.items() if given.environments else ()
    return {**dict.fromkeys(OURS), **{name: other for name, other in others if given.pytorch or not other.reads_torch}}


def timed(model: TextModel, text: str) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    model.predict([text], batch=1)
    return time.perf_counter() - start


def under_load(store: Store[ServingReport], calls: Calls, service: str) -> float:
    """Find the capacity of a service and run shares of it; return the capacity."""
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
    return best


def add(store: Store[ServingReport], load: Load) -> None:
    """Store a result."""
    store.update(loads=(*(each for each in store.report.loads if each.key != load.key), load))


def is_same(expected: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return whether an answer is the expected one, but for the last digits of numbers."""
    for field, value in expected.items():
        if isinstance(value, float) or (isinstance(value, list) and value and isinstance(value[0], float)):
            if not np.allclose(value, found[field], atol=1e-3):
                return False
        elif value != found[field]:
            return False
    return True


@contextmanager
def served(
    service: str, other: OtherServer | None, name: str, folder: Path, environments: Path, work: Path
) -> Iterator[psutil.Process]:
    """Start a service in a session of its own and wait until it answers."""
    command = [sys.executable, "-m", "compress", "serve", f"{name}={folder}", "--port", str(PORT)]
    command += ["--threads", str(OURS.get(service, 1))]
    if other is not None:
        program = work / "served_by_other.py"
        program.write_text(other.program, encoding="utf-8")
        python = environment_of(environments / other.package) if other.package else sys.executable
        command = [str(python), str(program)]
    place = {"FOLDER": str(folder.resolve()), "ROUTE": f"/models/{name}/predict", "PORT": str(PORT)}
    variables, log = {**os.environ, "OMP_NUM_THREADS": "1", **place}, (work / "log.txt").open("w")
    with subprocess.Popen(command, stdout=log, stderr=log, env=variables, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not asyncio.run(_answers(name)):
                if time.monotonic() > deadline or process.poll() is not None:
                    raise CompressError(f"{service} does not answer: {(work / 'log.txt').read_text()[-2000:]}")
                time.sleep(0.2)
            yield psutil.Process(process.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def environment_of(folder: Path) -> Path:
    """Return the Python of an environment with the package that the folder is called by; made where it is missing.

    What the package does not bring comes from the benchmark's own environment.
    """
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", folder.name], check=True)
        (own,) = folder.glob("lib/python*/site-packages")
        places = [sysconfig.get_paths()["purelib"], str(Path(__file__).resolve().parents[1])]
        (own / "benchmark.pth").write_text("\n".join(places))
        (folder / "ready").touch()
    return python


async def _answers(name: str) -> bool:
    try:
        connection = await asyncio.open_connection("127.0.0.1", PORT)
        status, *_ = await _call(*connection, _request(name, "a text"))
        connection[1].close()
        return status == HTTP_OK
    except OSError:
        return False


@dataclass(frozen=True)
class Calls:
    """What a client does."""

    name: str
    texts: Sequence[str]
    expected: Sequence[Mapping[str, Any]]
    """The right answers; none: they are not compared."""
    seconds: float
    callers: int | None = None
    """Each calls again when it has its answer."""
    rate: float = 0.0
    """Requests a second, where there are no callers."""


def call(calls: Calls, service: str, load: str) -> Load:
    """Call from a process of its own."""
    results, process = client_process(calls)
    facts = results.recv()
    process.join()
    return Load(model=calls.name, service=service, load=load, **facts)


def client_process(calls: Calls) -> tuple[Any, multiprocessing.process.BaseProcess]:
    """Start a client; return where its results come, and its process."""
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe()
    process = context.Process(target=_client, args=(ours, calls))
    process.start()
    return theirs, process


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
                now = time.perf_counter()
                tasks.append(asyncio.create_task(self._once(now if now < due + LATE else due)))
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
            status, body, stays = await _call(*connection, self._requests[number])
            if stays:
                self._idle.append(connection)
            else:
                connection[1].close()
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
        if self._calls.expected:
            answers = json.loads(body)
            (answer,) = answers if isinstance(answers, list) else answers["answers"]
            self._wrong += not is_same(self._calls.expected[number], answer)


def _request(name: str, text: str) -> bytes:
    body = json.dumps({"texts": [text]}).encode()
    head = f"POST /models/{name}/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes, bool]:
    """Return the status and the body, and whether the connection stays open."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length), "connection: close" not in head


def page(report: ServingReport) -> str:
    """Return the page in Markdown."""
    most = {
        (each.model, each.service): each.answered / each.seconds
        for each in sorted(report.loads, key=lambda each: each.answered / each.seconds)
        if each.load.startswith("callers")
    }
    added = [
        f"- {each.model}, {each.service}: {each.p50:.2f} ms for one caller, the model alone {alone:.2f} ms; at most"
        f" {(rate := most[each.model, each.service]):,.0f} answers a second: {rate * alone / 1e3:.0%} of one thread"
        for each in report.loads
        if each.load == "callers: 1" and each.p50 and (alone := report.alone[each.model])
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
