"""What is read of a service's chat completion: the answer, how it ended, and the tokens that it counted."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field

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
