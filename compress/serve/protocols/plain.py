"""`POST /models/NAME/predict {"texts": [...]}`: for whoever has curl; answers as `compress predict` gives them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from compress.errors import CompressError
from compress.serve.service import Refusal, Service, as_input

Texts = Annotated[list[str], Field(min_length=1)]


class PlainRequest(BaseModel):
    """Texts; a list in place of a text where several are read together."""

    model_config = ConfigDict(extra="forbid")

    texts: list[str | Texts] = Field(min_length=1)
    probabilities: bool = False
    """Adds those of all classes."""


async def predict(request: Request, service: Service) -> dict[str, Any]:
    """Answer each text; one that is wrong has an `error` in its place."""
    name = request.path_params.get("name")
    service.served(name)
    body = await service.read(request, PlainRequest)
    found = await service.answers(name, [as_input(text) for text in body.texts])
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


def refused(error: Refusal) -> dict[str, Any]:
    """Return the body of a refusal."""
    return {"error": error.message}
