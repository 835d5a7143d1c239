"""A deadline for receiving a request: middleware comes too late for a client that sends a byte a second."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

BODY = b'{"error": "the request did not come in time."}'
LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


class DeadlineProtocol(HttpToolsProtocol):
    """HTTP, whose requests must have come within ``seconds``."""

    seconds: float
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin with a connection."""
        super().connection_made(transport)
        self._start()

    def on_message_begin(self) -> None:
        """Begin with a request."""
        super().on_message_begin()
        self._start()

    def on_message_complete(self) -> None:
        """It has come."""
        super().on_message_complete()
        self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """It will not come."""
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._stop()
        self._timer = self.loop.call_later(self.seconds, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started:  # type: ignore[redundant-expr]
            self.transport.write(LATE)
        self.transport.close()


def protocol_with_deadline(limit: float) -> type[HttpToolsProtocol]:
    """Return the protocol with this limit."""

    class Limited(DeadlineProtocol):
        seconds = limit

    return Limited
