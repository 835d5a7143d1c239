"""One request to a service with OpenAI's interface, what is read of its reply, and what its failures mean.

The key comes from an environment variable and goes into the request alone: messages of the service are shown without
it, and exceptions of the client, which hold the request, are never chained to ours.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from compress.environment import require
from compress.errors import CompressError, UsageError
from compress.label.label_schema import LabelRecipe
from compress.label.prompt_and_answer import Messages

REFUSED_STATUS, BUSY_STATUS = (400, 413, 422), (408, 409, 429)
GATEWAY_STATUS = (502, 504, 524)
"""A gateway lost the answer of the service behind it, which may have charged it."""
UNSUPPORTED = {"structured": ("response_format", "json_schema", "structured"), "length": ("max_completion_tokens",)}
"""Words in the refusal of a request by which services that lack a feature are recognised."""
NO_MONEY = "insufficient_quota"


class ServiceFailure(CompressError):
    """The service cannot be used: no further request is sent."""


class Refused(Exception):
    """The service refuses this text, such as one that is too long for it; others may be answered."""


class Busy(Exception):
    """No answer this time; the request can be repeated."""

    def __init__(
        self,
        reason: str,
        wait: float | None = None,
        maybe_paid: bool = False,
        absent: bool = False,
        limited: bool = False,
    ) -> None:
        """``limited``: too much was asked of the service, whatever the text is."""
        super().__init__(reason)
        self.reason, self.wait, self.maybe_paid = reason, wait, maybe_paid
        self.absent, self.limited = absent, limited


class ChatClient:
    """Sends requests; may be used by several threads."""

    def __init__(self, recipe: LabelRecipe, schema: dict[str, Any]) -> None:
        self._openai, self._recipe, self._schema = require("openai", "label"), recipe, schema
        self._key = read_key(recipe)
        self._structured, self._length = recipe.endpoint.structured is not False, "max_completion_tokens"
        endpoint = recipe.endpoint
        options: dict[str, Any] = {"base_url": endpoint.url, "timeout": endpoint.timeout, "max_retries": 0}
        try:
            self._client = self._openai.OpenAI(api_key=self._key or "none", **options)
        except ValueError as error:  # a proxy of the environment that cannot be one
            hint = "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name proxies"
            raise UsageError(f"the client cannot be started: {shown(str(error), self._key)}.", hint) from None
        self.has_answered = False

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, messages: Messages) -> Reply:
        """Send one request.

        Raises:
            Busy: where the same request may be answered later.
            Refused: where this text never will be.
            ServiceFailure: where no text will be.
        """
        try:
            return self._send(messages)
        except self._openai.APIError as error:
            failure = self._failure(error)
        if failure is None:  # without the feature that the service lacks
            return self.ask(messages)
        raise failure from None

    def _send(self, messages: Messages) -> Reply:
        recipe = self._recipe
        options: dict[str, Any] = {self._length: recipe.answer_tokens, "temperature": recipe.sampling_temperature}
        if self._structured:
            schema = {"name": "answer", "strict": True, "schema": self._schema}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        create = self._client.chat.completions.with_raw_response.create
        content = create(model=recipe.endpoint.model, messages=messages, **options).content
        try:
            reply = read_reply(content)
        except ValidationError:
            given = shown(content.decode(errors="replace"), self._key)
            raise Busy(f"its answer is no chat completion: {given!r}", maybe_paid=True) from None
        self.has_answered = True
        return reply

    def _failure(self, error: Any) -> Exception | None:
        """Return what a failed request means; None where it can be repeated at once in another form."""
        if isinstance(error, self._openai.APITimeoutError):
            return Busy(f"no answer within {self._recipe.endpoint.timeout:g} s", maybe_paid=True)
        if not isinstance(error, self._openai.APIStatusError):
            cause = error.__cause__ or error
            absent = type(cause).__name__ == "ConnectError"
            return Busy(shown(str(cause), self._key), maybe_paid=not absent, absent=absent)
        status, message = error.status_code, _message(error)
        reason = shown(message, self._key)
        if status in REFUSED_STATUS:
            return None if self._drop_unsupported(message) else Refused(f"status {status}: {reason}")
        if status in BUSY_STATUS or status >= 500:
            if error.code == NO_MONEY:
                return ServiceFailure(f"the account at {self._recipe.endpoint.url} has no money left ({NO_MONEY}).")
            wait, maybe_paid = retry_after(error.response.headers), status in GATEWAY_STATUS
            return Busy(f"status {status}: {reason}", wait, maybe_paid, limited=status == 429)
        return self._rejection(status, reason)

    def _rejection(self, status: int, reason: str) -> ServiceFailure:
        """Return what a rejected key means, whose message may hold it and is not shown, or a wrong address."""
        endpoint = self._recipe.endpoint
        if status in (401, 403):
            source = f"the key in {endpoint.key}" if endpoint.key else "a request without a key (endpoint.key)"
            return ServiceFailure(f"{endpoint.url} rejects {source} (status {status}).")
        hint = "endpoint.url ends in /v1 for most services; endpoint.model is a name that the service knows"
        return ServiceFailure(f"{endpoint.url} refuses the model '{endpoint.model}' ({status}): {reason}.", hint)

    def _drop_unsupported(self, message: str) -> bool:
        """Do without a feature that the service says it lacks; return whether there was one."""
        lacks = {name for name, words in UNSUPPORTED.items() if any(word in message for word in words)}
        if "length" in lacks and self._length == "max_completion_tokens":
            self._length = "max_tokens"
            return True
        if "structured" in lacks and self._structured and self._recipe.endpoint.structured == "auto":
            self._structured = False
            return True
        return False

    def hide_key(self, text: str) -> str:
        """Return a text of the service without the key, should it repeat it."""
        return hide_key(text, self._key)

    def shown(self, text: str) -> str:
        """Return the beginning of a text of the service, without the key."""
        return shown(text, self._key)


def _message(error: Any) -> str:
    """Return the message of a service's error, or the whole of one without a message."""
    message = error.body.get("message") if isinstance(error.body, Mapping) else None
    return message if isinstance(message, str) and message else str(error.response.text)


def retry_after(headers: Any) -> float | None:
    """Return the seconds that a service asks to wait: a number, or the time that a date is away."""
    value = headers.get("retry-after")
    try:
        seconds = math.nan if value is None else float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


COMPLETE, CUT_OFF, DECLINED, FILTERED = "stop", "length", "refusal", "content_filter"
"""How an answer ended; where the model declines, that is stated beside the answer."""
MOST_TOKENS = 1 << 40
"""Of one request; what states more is broken."""


class Reply(NamedTuple):
    """An answer as the service gave it."""

    text: str
    """May repeat the key."""
    end: str
    input_tokens: int | None
    output_tokens: int | None

    @property
    def refused(self) -> bool:
        """Whether the model declined, or a filter withheld the answer."""
        return self.end in (DECLINED, FILTERED)


def _count(value: Any) -> int | None:
    """Return a stated number of tokens; None for what cannot be one, since the answer is worth no less."""
    return value if type(value) is int and 0 <= value < MOST_TOKENS else None


Tokens = Annotated[int | None, BeforeValidator(_count)]


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


def read_reply(content: bytes) -> Reply:
    """Return the answer in a response; raises pydantic's ``ValidationError`` where that is no chat completion."""
    completion = _Completion.model_validate_json(content)
    choice, usage = completion.choices[0], completion.usage or _Usage()
    message = choice.message
    return Reply(
        text=message.refusal or message.content or "",
        end=DECLINED if message.refusal else choice.finish_reason or COMPLETE,
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
    )


SHOWN_CHARS = 200
"""How much of a service's message is shown."""
NO_KEY_HAS = set(" \t\"'\\")
"""With these a service that repeats the key would write it in another way, which could not be found."""


def read_key(recipe: LabelRecipe) -> str | None:
    """Return the key from its environment variable; None for a service without one."""
    variable = recipe.endpoint.key
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"endpoint.key: the environment variable {variable} is not set.", f"export {variable}=…")
    if not key.isascii() or not key.isprintable() or NO_KEY_HAS.intersection(key):
        raise UsageError(f"endpoint.key: the environment variable {variable} holds characters that no key has.")
    return key


def hide_key(text: str, key: str | None) -> str:
    """Return a text without the key."""
    return text.replace(key, "***") if key else text


def shown(text: str, key: str | None) -> str:
    """Return the beginning of a service's message in one line, without the key and the full stop."""
    return " ".join(hide_key(text, key).split())[:SHOWN_CHARS].rstrip(".")
