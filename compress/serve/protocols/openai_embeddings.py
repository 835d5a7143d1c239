"""`POST /v1/embeddings`, as OpenAI's clients send it."""

import asyncio
import base64
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field
from starlette.requests import Request

from compress.runtime.text_model import TextModel
from compress.serve.service import Refusal, Service


class EmbeddingsRequest(BaseModel):
    """What clients send; lists of tokens are refused, since those of another model are meaningless."""

    input: str | list[str] | list[int] | list[list[int]] = Field(min_length=1)
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


async def embeddings(request: Request, service: Service) -> dict[str, Any]:
    """Embed texts."""
    body = await service.read(request, EmbeddingsRequest)
    name = body.model if body.model in service.names or len(service.names) > 1 else None
    served = service.served(name)
    if served.model.kind.head != "sentence-embedding":
        raise Refusal(400, "kind", f"{served.name} makes no embeddings: it is a model of {served.model.task.kind}.")
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not all(isinstance(text, str) for text in texts):
        raise Refusal(400, "tokens", "input holds tokens; expected texts, which this service tokenizes itself.")
    answers = await service.all_answers(served.name, [str(text) for text in texts])
    if empty := [number for number, answer in enumerate(answers, 1) if answer["embedding"] is None]:
        raise Refusal(400, "empty", f"input {empty[0]} is an empty text.")
    vectors = [np.array(answer["embedding"], np.float32) for answer in answers]
    if body.dimensions not in (None, len(vectors[0])):
        raise Refusal(400, "dimensions", f"embeddings have {len(vectors[0])} dimensions; got {body.dimensions}.")
    tokens = await asyncio.to_thread(_count_tokens, served.model, [str(text) for text in texts])
    as_text = body.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.tobytes()).decode() if as_text else vector.tolist(),
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}


def _count_tokens(model: TextModel, texts: list[str]) -> int:
    return sum(len(model.tokens(model.prompt + text, None, model.task.max_length).input_ids) for text in texts)


def refused(error: Refusal) -> dict[str, Any]:
    """Return the body of a refusal."""
    kind = (
        "invalid_request_error" if error.status < 429 else "rate_limit_error" if error.status == 429 else "server_error"
    )
    return {"error": {"message": error.message, "type": kind, "param": None, "code": None}}
