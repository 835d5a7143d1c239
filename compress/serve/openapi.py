"""`/openapi.json`: what the models of this service take and return, labels included."""

from typing import Any

from pydantic import BaseModel

from compress import __version__
from compress.serve.protocols import hugging_face, openai_embeddings, plain
from compress.serve.protocols import text_embeddings_inference as tei
from compress.serve.protocols.open_inference import InferRequest, output_fields
from compress.serve.served_model import ServedModel
from compress.serve.service import Service

REFUSALS = {
    400: "not what this path reads",
    401: "the key is missing",
    404: "no such model",
    408: "the request did not come in time",
    413: "too large",
    422: "a text that this model cannot read",
    424: "another kind of model",
    429: "too many rows wait: Retry-After says when to try again",
    503: "the service ends",
}
TYPES: dict[str, dict[str, Any]] = {
    "probability": {"type": "number", "minimum": 0, "maximum": 1},
    "score": {"type": "number"},
    "embedding": {"type": "array", "items": {"type": "number"}},
    "scores": {"type": "array", "items": {"type": "number"}},
    "order": {"type": "array", "items": {"type": "integer"}},
    "start": {"type": "integer"},
    "end": {"type": "integer"},
    "place": {"type": "integer"},
    "entities": {"type": "array", "items": {"type": "object"}},
}


def describe(service: Service) -> dict[str, Any]:
    """Return the description in OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    served = [service.served(name) for name in service.names]
    for each in served:
        answers = {"type": "object", "properties": {"answers": {"type": "array", "items": answer_schema(each)}}}
        about = f"{each.model.task.kind}; reads {', '.join(each.model.task.text)}"
        paths[f"/models/{each.name}/predict"] = _post(plain.PlainRequest, answers, about, schemas)
        paths[f"/models/{each.name}"] = _post(hugging_face.HubRequest, {}, "as the Hub's API answers", schemas)
        paths[f"/v2/models/{each.name}/infer"] = _post(
            InferRequest, {"type": "object"}, "Open Inference Protocol", schemas
        )
    if len(served) == 1:
        paths.update(_of_one(served[0], schemas))
    for path in ("/health/live", "/health/ready", "/metrics", "/models"):
        paths[path] = {"get": {"responses": {"200": {"description": "ok"}, "503": {"description": "not ready"}}}}
    info = {"title": "compress", "version": __version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _of_one(served: ServedModel, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the paths that stand for the only model."""
    kind = served.model.kind
    listed = {"type": "array"}
    paths = {"/": _post(hugging_face.HubRequest, {}, "as the Hub's API answers", schemas)}
    if kind.head == "sequence-classification" and "order" not in kind.answer_fields:
        paths["/predict"] = _post(tei.PredictRequest, listed, "as text-embeddings-inference answers", schemas)
    if kind.head == "sentence-embedding":
        paths["/embed"] = _post(tei.EmbedRequest, listed, "as text-embeddings-inference answers", schemas)
        paths["/v1/embeddings"] = _post(
            openai_embeddings.EmbeddingsRequest, {"type": "object"}, "as OpenAI answers", schemas
        )
    if "order" in kind.answer_fields:
        paths["/rerank"] = _post(tei.RerankRequest, listed, "as text-embeddings-inference answers", schemas)
    return paths


def _post(form: type[BaseModel], answer: dict[str, Any], about: str, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = form.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    schemas[form.__name__] = schema
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{form.__name__}"}}}
    responses: dict[str, Any] = {"200": {"description": "answers", "content": {"application/json": {"schema": answer}}}}
    refused = {"application/json": {"schema": {"type": "object"}}}
    responses |= {str(status): {"description": what, "content": refused} for status, what in REFUSALS.items()}
    return {"post": {"summary": about, "requestBody": {"required": True, "content": content}, "responses": responses}}


def answer_schema(served: ServedModel) -> dict[str, Any]:
    """Return the schema of an answer; every field of an empty text's is null."""
    model = served.model
    properties: dict[str, Any] = {"reason": {"type": "string"}, "error": {"type": "string"}}
    for name in output_fields(served):
        if name in ("label", "labels", "tags") and model.task.labels:
            one = {"type": "string", "enum": list(model.task.labels)}
            schema: dict[str, Any] = one if name == "label" else {"type": "array", "items": one}
        else:
            schema = TYPES.get(name, {})
        properties[name] = {"anyOf": [schema, {"type": "null"}]} if schema else {}
    return {"type": "object", "properties": properties}
