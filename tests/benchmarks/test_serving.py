"""The benchmark of the service: its client, its table and its page."""

import asyncio

import pytest

from benchmarks import serving
from benchmarks.report_store import beginning
from benchmarks.serving import Calls, Client, Load, ServingReport, answer_key, page, rows_of


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
        client = Client(Calls("m", ["text"], [answer_key({"label": "a"})], seconds=0.2, callers=1))
        found = await client.run()
        server.close()
        return found

    found = asyncio.run(run())
    assert (found["answered"], found["refused"], found["wrong"]) == (2, 1, 1)
    assert found["lost"] > 0


def test_numbers_are_compared_to_four_digits() -> None:
    assert answer_key({"score": 0.12341}) == answer_key({"score": 0.12339})
    assert answer_key({"score": 0.1234}) != answer_key({"score": 0.1244})


def test_the_table_and_the_page() -> None:
    load = Load(model="m", service="compress serve", load="callers: 1", seconds=2.0, answered=100, p50=1.5, p99=2.0)
    report = ServingReport(**beginning("x", trial=False), loads=(load,), alone={"m": 1.2}, memory={"m": (100.0, 101.0)})
    assert next(rows_of(report))["answers a second"] == "50"
    assert "1.50 ms, the model alone 1.20 ms" in page(report)
