"""Rows of all requests, in batches where that answers more of them a second, and never where answers depend on it.

A thread takes its share of the rows that wait, tokenizes them and runs the model. A row has a future; one that is wrong
fails alone.
"""

import math
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from compress.errors import unexpected
from compress.runtime.text_model import NO_TEXT
from compress.serve.prometheus_metrics import Metrics
from compress.serve.served_model import ServedModel
from compress.tasks.base import Example, Row, TaskInput

MAX_JOINED = 64
"""Rows that a thread takes at once, of which those of a batch are chosen."""

Answer = dict[str, Any]


class Overloaded(Exception):
    """The queue is full."""


class Closed(Exception):
    """The service ends, or the model was replaced."""


@dataclass
class Ticket:
    """One row on its way."""

    given: TaskInput
    future: Future[Answer] = field(default_factory=Future)
    came: float = field(default_factory=time.perf_counter)
    row: Row | None = None
    examples: list[Example] = field(default_factory=list)

    @property
    def size(self) -> tuple[int, int]:
        """Its examples, and the tokens of the longest."""
        return len(self.examples), max(len(example["input_ids"]) for example in self.examples)


class Batcher:
    """The queue of one model."""

    def __init__(self, served: ServedModel, queue: int, max_wait: float, metrics: Metrics, threads: int = 1) -> None:
        """Start the threads.

        Args:
            served: the model.
            queue: rows that may wait when another request comes, however many it has.
            max_wait: seconds for which a row waits for others that may run with it, at most.
            metrics: of the service.
            threads: that tokenize rows and run the model, each its own rows.
        """
        self.served = served
        self._queue, self._max_wait, self._metrics = queue, max_wait, metrics
        self._changed = threading.Condition()
        self._came: deque[Ticket] = deque()
        self._unfinished = 0
        self._closed = False
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, inputs: list[TaskInput]) -> list[Future[Answer]]:
        """Add rows; Overloaded where too many wait already, Closed where none is taken any more."""
        tickets = [Ticket(given) for given in inputs]
        with self._changed:
            if self._closed:
                raise Closed
            if self._unfinished >= self._queue:
                raise Overloaded
            self._unfinished += len(tickets)
            self._came.extend(tickets)
            self._metrics.queue(self.served.name, self._unfinished)
            self._changed.notify(len(tickets))
        return [ticket.future for ticket in tickets]

    @property
    def unfinished(self) -> int:
        """Rows that wait or run."""
        return self._unfinished

    def close(self) -> None:
        """Take no more rows; answer those that are here, then end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        times = self.served.times
        while mine := self._share():
            rows = [ticket for ticket in mine if self._tokenize(ticket)]
            while rows:
                together = [0] if times is None else times.batch([ticket.size for ticket in rows])
                tickets = [rows[index] for index in together]
                rows = [ticket for index, ticket in enumerate(rows) if index not in together]
                for ticket in tickets:
                    self._metrics.stage("queue", self.served.name, time.perf_counter() - ticket.came)
                self._answer(tickets)

    def _share(self) -> list[Ticket]:
        """Wait for rows and return a thread's share of them; none where the service ends."""
        times = self.served.times
        with self._changed:
            while True:
                while not self._came:
                    if self._closed:
                        return []
                    self._changed.wait()
                left = self._came[0].came + self._max_wait - time.perf_counter()
                if left <= 0 or times is None or len(self._came) >= times.largest or self._closed:
                    break
                self._changed.wait(left)
            count = min(math.ceil(len(self._came) / len(self._threads)), MAX_JOINED)
            return [self._came.popleft() for _ in range(count)]

    def _tokenize(self, ticket: Ticket) -> bool:
        """Return whether a row goes to the model: others are answered, or wrong, or nobody waits for them."""
        model, start = self.served.model, time.perf_counter()
        if not ticket.future.set_running_or_notify_cancel():
            self._leave(ticket)
            return False
        try:
            if model.kind.is_empty(ticket.given):
                self._finish(ticket, {**model.kind.empty_answer(ticket.given), "reason": NO_TEXT})
                return False
            ticket.row, ticket.examples = model.row_examples(ticket.given, "the text")
        except Exception as error:  # noqa: BLE001  it is the error of this row
            self._fail(ticket, error)
            return False
        self._metrics.stage("tokenize", self.served.name, time.perf_counter() - start)
        return True

    def _answer(self, tickets: list[Ticket]) -> None:
        """Answer rows that run together; where that fails, each of them alone."""
        start = time.perf_counter()
        try:
            answers = self._predicted(tickets)
        except Exception as error:  # noqa: BLE001
            if len(tickets) == 1:
                self._fail(tickets[0], error)
                return
            for ticket in tickets:
                self._answer([ticket])
            return
        self._metrics.batch(self.served.name, tickets, time.perf_counter() - start)
        for ticket, answer in zip(tickets, answers, strict=True):
            self._finish(ticket, answer)

    def _predicted(self, tickets: list[Ticket]) -> list[Answer]:
        model, served = self.served.model, self.served
        examples = [example for ticket in tickets for example in ticket.examples]
        size = 1 if served.times is None else served.times.largest
        starts = range(0, len(examples), size)
        decoded = [found for start in starts for found in model.decode(examples[start : start + size])]
        rows = [ticket.row for ticket in tickets if ticket.row is not None]
        every = model.kind.exclusive and bool(model.task.labels)
        return model.answers(decoded, [len(ticket.examples) for ticket in tickets], rows, every_class=every)

    def _finish(self, ticket: Ticket, answer: Answer) -> None:
        self._leave(ticket)
        ticket.future.set_result(answer)

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        self._leave(ticket)
        ticket.future.set_exception(unexpected(error))

    def _leave(self, ticket: Ticket) -> None:
        with self._changed:
            self._unfinished -= 1
            self._metrics.queue(self.served.name, self._unfinished)
        self._metrics.stage("whole", self.served.name, time.perf_counter() - ticket.came)
