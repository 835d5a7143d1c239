"""`POST /` and `POST /models/NAME`, as huggingface_hub's InferenceClient calls a model's address."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request

from compress.serve.served_model import ServedModel
from compress.serve.service import Refusal, Service
from compress.tasks.base import TaskInput


class HubRequest(BaseModel):
    """Inputs in the form of the model's task."""

    inputs: str | list[str] | dict[str, str | list[str]] = Field(min_length=1)
    parameters: Mapping[str, Any] = {}


async def call(request: Request, service: Service) -> Any:
    """Answer as the Hub's API does for the model's task."""
    name = request.path_params.get("name")
    served = service.served(name)
    body = await service.read(request, HubRequest)
    given = body.inputs
    if isinstance(given, dict):
        return await _named(given, service, served)
    texts = [given] if isinstance(given, str) else list(given)
    inputs: list[TaskInput] = list(texts)
    answers = await service.all_answers(served.name, inputs)
    results = [_result(text, answer, served) for text, answer in zip(texts, answers, strict=True)]
    top = body.parameters.get("top_k")
    if isinstance(top, int) and top > 0:
        results = [each[:top] if isinstance(each, list) else each for each in results]
    return results[0] if isinstance(given, str) and "entities" in answers[0] else results


async def _named(given: Mapping[str, Any], service: Service, served: ServedModel) -> Any:
    """Answer inputs with names: a question and its context, a sentence and others, a query and texts."""
    fields = set(served.model.kind.answer_fields)
    if {"question", "context"} <= set(given):
        _check("answer" in fields, served)
        [answer] = await service.all_answers(served.name, [(_text(given, "question"), _text(given, "context"))])
        return {
            "answer": answer["answer"] or "",
            "score": answer["probability"],
            "start": answer["start"],
            "end": answer["end"],
        }
    if {"source_sentence", "sentences"} <= set(given):
        _check("score" in fields, served)
        source, sentences = _text(given, "source_sentence"), given["sentences"]
        if isinstance(sentences, str):
            raise Refusal(422, "body", "inputs.sentences is a list of texts.")
        pairs: list[TaskInput] = [(source, sentence) for sentence in sentences]
        return [answer.get("score") for answer in await service.all_answers(served.name, pairs)]
    if {"text", "text_pair"} <= set(given):
        if "entities" in fields:
            raise Refusal(422, "body", f"{served.name} reads no pairs: inputs is a text, or several.")
        [answer] = await service.all_answers(served.name, [(_text(given, "text"), _text(given, "text_pair"))])
        return [_result("", answer, served)]
    raise Refusal(
        422,
        "body",
        "inputs is a text, several, {question, context}, {text, text_pair} or {source_sentence, sentences}.",
    )


def _text(given: Mapping[str, Any], name: str) -> str:
    if not isinstance(given[name], str):
        raise Refusal(422, "body", f"inputs.{name} is one text.")
    return str(given[name])


def _check(fits: bool, served: ServedModel) -> None:
    if not fits:
        raise Refusal(422, "kind", f"{served.name} is a model of {served.model.task.kind}, which has no such answers.")


def _result(text: str, answer: Mapping[str, Any], served: ServedModel) -> Any:
    if "entities" in answer:
        return _entities(text, answer)
    if "embedding" in answer:
        return answer["embedding"]
    if "score" in answer:
        return [
            {"label": served.model.task.labels[0] if served.model.task.labels else "LABEL_0", "score": answer["score"]}
        ]
    shares = (answer["probabilities"] or {}) if "probabilities" in answer else None
    if not isinstance(shares, Mapping):
        raise Refusal(422, "kind", f"a model of {served.model.task.kind} is called at /models/{served.name}/predict.")
    return sorted(({"label": name, "score": share} for name, share in shares.items()), key=lambda each: -each["score"])


def _entities(text: str, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return entities by their characters, as the Hub groups them."""
    places, start = [], 0
    for word in text.split():
        begin = text.index(word, start)
        start = begin + len(word)
        places.append((begin, start))
    return [
        {
            "entity_group": entity["type"],
            "score": entity["probability"],
            "word": text[places[entity["start"]][0] : places[entity["end"] - 1][1]],
            "start": places[entity["start"]][0],
            "end": places[entity["end"] - 1][1],
        }
        for entity in answer["entities"] or ()
    ]


def refused(error: Refusal) -> dict[str, Any]:
    """Return the body of a refusal."""
    return {"error": error.message}
