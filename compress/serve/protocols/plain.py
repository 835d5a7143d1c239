"""`POST /models/NAME/predict {"texts": [...]}`: for whoever has curl; answers as `compress predict` gives them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.requests import Request

from compress.errors import CompressError, UsageError
from compress.serve.service import Refusal, Service, as_input

ROWS = {
    "type": "array",
    "minItems": 1,
    "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
}


class PlainRequest(BaseModel):
    """Texts; a list in place of a text where several are read together."""

    model_config = ConfigDict(extra="forbid")

    texts: Annotated[list[Any], Field(min_length=1), WithJsonSchema(ROWS)]
    probabilities: bool = False
    """Adds those of all classes."""


async def predict(request: Request, service: Service) -> dict[str, Any]:
    """Answer each text; one that is wrong has an `error` in its place."""
    name = request.path_params.get("name")
    service.served(name)
    body = await service.read(request, PlainRequest)
    service.check_count(body.texts)
    fits = [_is_row(row) for row in body.texts]
    read = [as_input(row) for row, is_row in zip(body.texts, fits, strict=True) if is_row]
    answered = iter(await service.answers(name, read) if read else ())
    wrong = UsageError("a row is a text, or a list of texts that are read together.")
    found = [next(answered) if is_row else wrong for is_row in fits]
    if len(found) == 1 and isinstance(found[0], CompressError):
        raise Refusal(422, "row", found[0].full_message)
    kind = service.served(name).model.kind
    hidden = () if body.probabilities or "probabilities" in kind.answer_fields else ("probabilities",)
    answers = [
        {"error": answer.full_message}
        if isinstance(answer, CompressError)
        else {field: value for field, value in answer.items() if field not in hidden}
        for answer in found
    ]
    return {"answers": answers}


def _is_row(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return bool(texts) and all(isinstance(text, str) for text in texts)


def refused(error: Refusal) -> dict[str, Any]:
    """Return the body of a refusal."""
    return {"error": error.message}
