"""Deadlines for receiving a request and for sending its answer.

Middleware comes too late for a client that sends a byte a second, or takes none of its answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

BODY = b'{"error": "the request did not come in time."}'
LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


class DeadlineProtocol(HttpToolsProtocol):
    """HTTP, whose requests must have come, and whose answers must have been taken, within some seconds."""

    receive_seconds: float
    send_seconds: float
    _timer: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin with a connection; one without a request is not answered."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that whatever cannot be sent at once pauses writing
        self._start(self.transport.close)

    def on_message_begin(self) -> None:
        """Begin with a request."""
        super().on_message_begin()
        self._start(self._late)

    def on_message_complete(self) -> None:
        """It has come."""
        super().on_message_complete()
        self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """It will not come, and no answer be taken."""
        self._stop()
        self._stop_sending()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin with what the client does not take."""
        super().pause_writing()
        self._sending = self.loop.call_later(self.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It has taken all of it."""
        super().resume_writing()
        self._stop_sending()

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _start(self, late: Callable[[], None]) -> None:
        self._stop()
        self._timer = self.loop.call_later(self.receive_seconds, late)

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


def protocol_with_deadlines(receive: float, send: float) -> type[HttpToolsProtocol]:
    """Return the protocol with these limits."""

    class Limited(DeadlineProtocol):
        receive_seconds, send_seconds = receive, send

    return Limited
