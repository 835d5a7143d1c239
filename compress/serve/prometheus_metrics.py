"""What Prometheus reads at `/metrics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from compress.serve.batcher import Ticket

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters of one service."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("compress_requests", "Requests", ("path", "status"), registry=registry)
        self._refusals = Counter("compress_refusals", "Requests that were refused", ("reason",), registry=registry)
        self._rows = Counter("compress_rows", "Rows that were answered", ("model",), registry=registry)
        self._tokens = Counter(
            "compress_tokens", "Tokens that were read, without padding", ("model",), registry=registry
        )
        self._queue = Gauge("compress_queue_rows", "Rows that wait or run", ("model",), registry=registry)
        self._batches = Histogram(
            "compress_batch_rows", "Rows of a batch", ("model",), buckets=SIZES, registry=registry
        )
        about = "Seconds of a row in the queue, to tokenize, in the model (a batch), in the whole"
        self._stages = Histogram("compress_seconds", about, ("stage", "model"), buckets=SECONDS, registry=registry)

    def request(self, path: str, status: int) -> None:
        """Count a request, by its route."""
        self._requests.labels(path, str(status)).inc()

    def refusal(self, reason: str) -> None:
        """Count a request that was refused."""
        self._refusals.labels(reason).inc()

    def queue(self, model: str, rows: int) -> None:
        """Set the rows of a queue."""
        self._queue.labels(model).set(rows)

    def stage(self, stage: str, model: str, seconds: float) -> None:
        """Record how long a stage took."""
        self._stages.labels(stage, model).observe(seconds)

    def batch(self, model: str, tickets: Sequence[Ticket], seconds: float) -> None:
        """Record a batch."""
        self._batches.labels(model).observe(len(tickets))
        self._rows.labels(model).inc(len(tickets))
        self._tokens.labels(model).inc(sum(len(each["input_ids"]) for ticket in tickets for each in ticket.examples))
        self._stages.labels("model", model).observe(seconds)

    def text(self) -> bytes:
        """Return what Prometheus reads."""
        return generate_latest(self._registry)
