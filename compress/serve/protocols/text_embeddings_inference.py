"""`/predict`, `/embed`, `/rerank` and `/info`, as text-embeddings-inference answers them."""

import asyncio
import math
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.requests import Request

from compress import __version__
from compress.model_folder.model_info import read_info
from compress.runtime.text_model import TextModel
from compress.serve.served_model import ServedModel
from compress.serve.service import Refusal, Service, as_input
from compress.tasks.base import TaskInput

Sequence = Annotated[list[str], Field(min_length=1, max_length=2)]

LEAST = 1e-30
"""In place of a probability of 0, whose logarithm is taken."""


class PredictRequest(BaseModel):
    """A text, a pair, or a list of lists: each a text or a pair."""

    inputs: str | Sequence | list[Sequence] = Field(min_length=1)
    raw_scores: bool = False
    truncate: bool = False


class EmbedRequest(BaseModel):
    """A text or several."""

    inputs: str | list[str] = Field(min_length=1)
    normalize: bool = True
    truncate: bool = False


class RerankRequest(BaseModel):
    """A query, and texts to put in order."""

    query: str
    texts: list[str] = Field(min_length=1)
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool = False


async def predict(request: Request, service: Service) -> list[Any]:
    """Return each class with its score, the best first; a list of that for each input of a batch."""
    body = await service.read(request, PredictRequest)
    name = _only(service, ("sequence-classification",), "classes")
    if {"order", "choice"} & set(service.served(name).model.kind.answer_fields):
        raise _wrong_kind(service.served(name), "classes")
    is_one = isinstance(body.inputs, str) or isinstance(body.inputs[0], str)
    inputs: list[TaskInput] = [as_input(each) for each in ([body.inputs] if is_one else body.inputs)]  # type: ignore[arg-type]
    await _check_length(service, name, inputs, body.truncate)
    answers = await service.all_answers(name, inputs)
    results = [_classes(answer, raw=body.raw_scores) for answer in answers]
    return results[0] if is_one else results


def _classes(answer: dict[str, Any], *, raw: bool) -> list[dict[str, Any]]:
    if answer.get("reason"):
        raise Refusal(400, "empty", "inputs cannot be empty")
    shares = answer["probabilities"] if "probabilities" in answer else {"LABEL_0": answer["score"]}
    if raw and "label" in answer:  # up to a constant, which a softmax removes
        shares = {name: math.log(max(share, LEAST)) for name, share in shares.items()}
    elif raw and "labels" in answer:
        shares = {name: math.log(max(share, LEAST) / max(1 - share, LEAST)) for name, share in shares.items()}
    found = [{"score": share, "label": name} for name, share in shares.items()]
    return sorted(found, key=lambda each: -each["score"])


async def embed(request: Request, service: Service) -> list[Any]:
    """Return an embedding for each text."""
    body = await service.read(request, EmbedRequest)
    name = _only(service, ("sentence-embedding",), "embeddings")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    await _check_length(service, name, list(texts), body.truncate)
    answers = await service.all_answers(name, list(texts))
    if any(answer["embedding"] is None for answer in answers):
        raise Refusal(400, "empty", "inputs cannot be empty")
    vectors = [answer["embedding"] for answer in answers]
    if body.normalize:
        return [_of_length_1(vector) for vector in vectors]
    if all(_has_length_1(vector) for vector in vectors):
        raise Refusal(
            422, "normalize", f"{name} itself normalizes its embeddings: leave out normalize, or set it to true."
        )
    return vectors


def _has_length_1(vector: list[float]) -> bool:
    return math.isclose(math.hypot(*vector), 1.0, rel_tol=1e-3)


def _of_length_1(vector: list[float]) -> list[float]:
    """Return a vector of the same direction; that of a model that normalizes is left as it is."""
    length = math.hypot(*vector)
    return vector if not length or _has_length_1(vector) else [value / length for value in vector]


async def rerank(request: Request, service: Service) -> list[dict[str, Any]]:
    """Return the texts' indices and scores, the best first."""
    body = await service.read(request, RerankRequest)
    served = service.served(None)
    if "order" not in served.model.kind.answer_fields:
        raise Refusal(424, "kind", f"{served.name} puts nothing in order: it is a model of {served.model.task.kind}.")
    pairs: list[TaskInput] = [(body.query, text) for text in body.texts]
    await _check_length(service, served.name, pairs, body.truncate)
    answers = await service.all_answers(served.name, pairs)
    scores = [answer["scores"][0] if answer["scores"] else -math.inf for answer in answers]
    shown = scores if body.raw_scores else [1.0 / (1.0 + math.exp(-score)) for score in scores]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return [
        {"index": index, **({"text": body.texts[index]} if body.return_text else {}), "score": shown[index]}
        for index in order
    ]


async def info(request: Request, service: Service) -> dict[str, Any]:
    """Return what the model is."""
    served = service.served(None)
    model, limits = served.model, service.limits
    labels = {
        "id2label": {str(index): label for index, label in enumerate(model.task.labels)},
        "label2id": {label: index for index, label in enumerate(model.task.labels)},
    }
    if model.kind.head == "sentence-embedding":
        kind: dict[str, Any] = {"embedding": {"pooling": model.task.pooling}}
    else:
        kind = {"reranker" if "order" in model.kind.answer_fields else "classifier": labels}
    return {
        "model_id": served.name,
        "model_sha": None,
        "model_dtype": served.variant.precision if served.variant else "float32",
        "model_type": kind,
        "max_concurrent_requests": limits.connections,
        "max_input_length": model.task.max_length,
        "max_batch_tokens": model.task.max_length * (served.times.largest if served.times else 1),
        "max_batch_requests": served.times.largest if served.times else 1,
        "max_client_batch_size": limits.rows,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": __version__,
        "sha": None,
        "docker_label": read_info(served.folder).made_by or None,
    }


def _only(service: Service, heads: tuple[str, ...], what: str) -> str:
    served = service.served(None)
    if served.model.kind.head not in heads:
        raise _wrong_kind(served, what)
    return served.name


def _wrong_kind(served: ServedModel, what: str) -> Refusal:
    return Refusal(424, "kind", f"{served.name} answers no {what}: it is a model of {served.model.task.kind}.")


async def _check_length(service: Service, name: str, inputs: list[TaskInput], truncate: bool) -> None:
    """Refuse texts that would be cut, unless that is asked for."""
    model = service.served(name).model
    if not truncate and not model.kind.in_windows(model.task):
        await asyncio.to_thread(_check_each, model, inputs)


def _check_each(model: TextModel, inputs: list[TaskInput]) -> None:
    for given in inputs:
        texts = (given,) if isinstance(given, str) else given
        if not any(text.strip() for text in texts):
            raise Refusal(400, "empty", "inputs cannot be empty")
        texts = tuple(model.prompt + text for text in texts)
        if model.tokens(texts[0], texts[1] if len(texts) > 1 else None, model.task.max_length).truncated:
            raise Refusal(
                413,
                "tokens",
                f"`inputs` must have less than {model.task.max_length + 1} tokens; or set truncate to true",
            )


def refused(error: Refusal) -> dict[str, Any]:
    """Return the body of a refusal."""
    kinds = {400: "Empty", 413: "Validation", 422: "Validation", 424: "Backend", 429: "Overloaded", 503: "Unhealthy"}
    return {"error": error.message, "error_type": kinds.get(error.status, "Validation")}
