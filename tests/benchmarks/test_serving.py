"""The benchmark of the service: its client, what it compares and what it shows; no service is started."""

import ast
import asyncio

import pytest

from benchmarks import serving
from benchmarks.other_servers import OTHER_SERVERS
from benchmarks.report_store import beginning
from benchmarks.serving import OURS, Calls, Client, Load, ServingReport, is_same, page

ANSWER = {"label": "good", "probability": 0.75, "embedding": [0.5, 0.25], "reason": None}


@pytest.mark.filterwarnings("ignore")  # of connections that the service drops
def test_its_client_counts_answers_wrong_ones_refusals_and_lost_ones(monkeypatch) -> None:
    bodies = [(200, b'{"answers": [{"label": "a"}]}'), (429, b"{}"), (200, b'{"answers": [{"label": "b"}]}')]

    async def run() -> dict[str, object]:
        sent = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            while True:
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(int(head.decode().partition("content-length: ")[2].partition("\r")[0]))
                except asyncio.IncompleteReadError:
                    return
                if sent == len(bodies):
                    writer.close()
                    return
                status, body = bodies[sent]
                sent += 1
                writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        monkeypatch.setattr(serving, "PORT", server.sockets[0].getsockname()[1])
        client = Client(Calls("m", ["text"], [{"label": "a"}], seconds=0.2, callers=1))
        found = await client.run()
        server.close()
        return found

    found = asyncio.run(run())
    assert (found["answered"], found["refused"], found["wrong"]) == (2, 1, 1)
    assert found["lost"] > 0


def test_answers_are_the_same_but_for_the_last_digits():
    assert is_same(ANSWER, {**ANSWER, "probability": 0.7504, "embedding": [0.5004, 0.25], "more": 1})
    for name, value in (("label", "bad"), ("probability", 0.76), ("embedding", [0.5, 0.26]), ("reason", "no text")):
        assert not is_same(ANSWER, {**ANSWER, name: value})


def test_the_page_says_what_the_service_adds():
    service = next(iter(OURS))
    loads = tuple(
        Load(model="sst2", service=service, load=load, seconds=2.0, answered=answered, p50=1.5, p99=3.0)
        for load, answered in (("callers: 1", 1000), ("callers: 2", 1500), ("4 × capacity", 1800))
    )
    report = ServingReport(**beginning("x", trial=False), loads=loads, alone={"sst2": 1.0}, memory={"sst2": (90, 91)})
    shown = page(report)
    assert "1.50 ms for one caller, the model alone 1.00 ms; at most 750 answers a second: 75% of one thread" in shown
    assert "90 MB before, 91 MB after" in shown


@pytest.mark.parametrize("name", OTHER_SERVERS)
def test_programs_of_others_can_be_read(name):
    ast.parse(OTHER_SERVERS[name].program)
