"""The models of a service, its limits, and rows to answers; what protocols share."""

import asyncio
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from compress.errors import CompressError, first_error, nearest, pluralize
from compress.serve.batcher import Answer, Batcher, Closed, Overloaded
from compress.serve.prometheus_metrics import Metrics
from compress.serve.served_model import ServedModel
from compress.tasks.base import TaskInput

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True)
class Limits:
    """What one request may hold."""

    body: int = 8 << 20
    """Bytes."""
    rows: int = 1024
    characters: int = 1 << 20
    """Of one text."""
    queue: int = 256
    """Rows of a model that may wait when another request comes."""
    connections: int = 1000
    receive: float = 10.0
    """Seconds in which a request must have come."""
    send: float = 30.0
    """Seconds in which an answer must have been taken."""
    ending: int = 45
    """Seconds after which the service ends, whatever it has not answered: Kubernetes kills it after 60."""


class Refusal(Exception):
    """A request that is not answered: its status, and a message that says what is expected."""

    def __init__(self, status: int, reason: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after


class Service:
    """Models by name."""

    def __init__(
        self, limits: Limits, metrics: Metrics, max_wait: float = 0.0, key: str | None = None, threads: int = 1
    ) -> None:
        self.limits, self.metrics = limits, metrics
        self._max_wait, self._key, self._threads = max_wait, key, threads
        self._batchers: dict[str, Batcher] = {}
        self.is_ready = False

    def add(self, served: ServedModel) -> None:
        """Serve a model, in the place of one of the same name, which answers what it has."""
        before = self._batchers.get(served.name)
        self._batchers[served.name] = Batcher(served, self.limits.queue, self._max_wait, self.metrics, self._threads)
        if before is not None:
            before.close()

    @property
    def names(self) -> list[str]:
        """The names of all models."""
        return list(self._batchers)

    def served(self, name: str | None) -> ServedModel:
        """Return a model by name, or the only one."""
        return self._batcher(name).served

    def _batcher(self, name: str | None) -> Batcher:
        if name is None and len(self._batchers) > 1:
            raise Refusal(
                400, "no model named", f"there are several models: {', '.join(self.names)}; name one in the path."
            )
        if name is None:
            return next(iter(self._batchers.values()))
        if name not in self._batchers:
            raise Refusal(404, "unknown model", f"no model is called '{name[:100]}'{nearest(name[:100], self.names)}")
        return self._batchers[name]

    def check_key(self, request: Request) -> None:
        """Refuse a request without the key, where there is one."""
        if self._key is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), self._key.encode()):
            raise Refusal(401, "key", "the header `Authorization: Bearer KEY` is missing, or its key is another one.")

    async def body(self, request: Request) -> bytes:
        """Return what was sent, up to the limit."""
        limit = self.limits.body
        too_large = Refusal(413, "body", f"the body may have {limit:,} bytes.")
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) > limit:
            raise too_large
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > limit:
                raise too_large
        return bytes(content)

    async def read(self, request: Request, form: type[Body]) -> Body:
        """Return the body as ``form`` describes it."""
        try:
            return form.model_validate_json(await self.body(request))
        except ValidationError as error:
            status = 400 if error.errors()[0]["type"] == "json_invalid" else 422
            raise Refusal(status, "body", f"{first_error(error)}.") from error

    async def answers(self, name: str | None, inputs: Sequence[TaskInput]) -> list[Answer | CompressError]:
        """Return the answer to each input, or what is wrong with it."""
        self._check(inputs)
        while True:
            batcher = self._batcher(name)
            try:
                futures = batcher.submit(list(inputs))
                break
            except Overloaded:
                message = f"{pluralize(batcher.unfinished, 'row')} wait already; try again in a second."
                raise Refusal(429, "queue", message, retry_after=1) from None
            except Closed:
                if self._batchers.get(batcher.served.name) is batcher:
                    raise _ending() from None
        try:
            found = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        except asyncio.CancelledError:  # by the server, where its time to end is over
            raise _ending() from None
        return [each for each in found if isinstance(each, (dict, CompressError))]

    async def all_answers(self, name: str | None, inputs: Sequence[TaskInput]) -> list[Answer]:
        """Return the answer to each input; refuses the request where one is wrong."""
        answers: list[Answer] = []
        for number, found in enumerate(await self.answers(name, inputs), 1):
            if isinstance(found, CompressError):
                raise Refusal(422, "row", f"text {number}: {found.full_message}")
            answers.append(found)
        return answers

    def check_count(self, rows: Sequence[object]) -> None:
        """Refuse a request without rows, and one with too many."""
        if not rows:
            raise Refusal(422, "rows", "there is no text.")
        if len(rows) > self.limits.rows:
            raise Refusal(413, "rows", f"a request may hold {self.limits.rows:,} texts; got {len(rows):,}.")

    def _check(self, inputs: Sequence[TaskInput]) -> None:
        self.check_count(inputs)
        for number, given in enumerate(inputs, 1):
            for text in (given,) if isinstance(given, str) else given:
                if len(text) > self.limits.characters:
                    raise Refusal(
                        413,
                        "characters",
                        f"text {number} has {len(text):,} characters, {self.limits.characters:,} are allowed.",
                    )

    def close(self) -> None:
        """Answer what has come, then end."""
        self.is_ready = False
        for batcher in self._batchers.values():
            batcher.close()


def _ending() -> Refusal:
    """Return the refusal of what is not answered any more."""
    return Refusal(503, "ending", "the service ends.", retry_after=5)


def as_input(value: str | Sequence[str]) -> TaskInput:
    """Return a text, or several that are read together, as `predict` takes them."""
    return value if isinstance(value, str) else value[0] if len(value) == 1 else tuple(value)
