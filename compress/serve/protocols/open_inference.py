"""The Open Inference Protocol, version 2, of tritonclient and KServe: texts in, an output for each field of an answer.

Inputs are of the type BYTES: one for the texts, or one for each column of the task. Binary data follows the JSON part
of a body, whose length is in a header; each text has its length before it.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from compress import __version__
from compress.console import to_json
from compress.errors import first_error
from compress.serve.served_model import ServedModel
from compress.serve.service import Refusal, Service
from compress.tasks.base import TaskInput

HEADER, HEADER_DIGITS = "inference-header-content-length", 20
TYPES = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64"}


class InputTensor(BaseModel):
    """One input."""

    name: str
    shape: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    datatype: str
    parameters: Mapping[str, Any] = {}
    data: list[Any] | None = None


class OutputWanted(BaseModel):
    """One output that is asked for."""

    name: str
    parameters: Mapping[str, Any] = {}


class InferRequest(BaseModel):
    """The JSON part of a request."""

    id: str | None = None
    inputs: list[InputTensor] = Field(min_length=1)
    outputs: list[OutputWanted] = []
    parameters: Mapping[str, Any] = {}


async def infer(request: Request, service: Service) -> Response:
    """Answer texts."""
    served = service.served(request.path_params.get("name"))
    content = await service.body(request)
    header = request.headers.get(HEADER)
    if header is not None and not _is_length(header, len(content)):
        raise Refusal(400, "body", f"{HEADER} is {header[:20]!r}; expected the length of the JSON part.")
    length = len(content) if header is None else int(header)
    try:
        body = InferRequest.model_validate_json(content[:length])
    except ValidationError as error:
        raise Refusal(400, "body", f"{first_error(error)}.") from error
    inputs = _inputs(body.inputs, content[length:], served)
    answers = await service.all_answers(served.name, inputs)
    return _response(body, answers, output_fields(served, next(iter(inputs), "")), served.name)


def _is_length(header: str, most: int) -> bool:
    """Whether a header is a number up to ``most``; Python reads none of more than 4,300 digits."""
    return header.isdecimal() and len(header) <= HEADER_DIGITS and int(header) <= most


def _inputs(tensors: Sequence[InputTensor], binary: bytes, served: ServedModel) -> list[TaskInput]:
    columns: list[list[str]] = []
    for tensor in tensors:
        if tensor.datatype != "BYTES":
            raise Refusal(400, "type", f"input '{tensor.name}' is of {tensor.datatype}; expected texts (BYTES).")
        size = tensor.parameters.get("binary_data_size")
        if size is not None:
            if not isinstance(size, int) or not 0 <= size <= len(binary):
                raise Refusal(
                    400, "body", f"input '{tensor.name}' states {size!r} bytes of binary data; {len(binary)} follow."
                )
            texts, binary = _decoded(binary[:size], tensor.name), binary[size:]
        else:
            texts = _flat(tensor.data or [], tensor.name)
        if len(texts) != (expected := int(np.prod(tensor.shape))):
            raise Refusal(
                400, "shape", f"input '{tensor.name}' has {len(texts)} texts where its shape holds {expected}."
            )
        columns.append(texts)
    task = served.model.task
    if len(columns) == 1:
        width = tensors[0].shape[1] if len(tensors[0].shape) > 1 else 1
        if width == 1:
            return list(columns[0])
        return [tuple(columns[0][start : start + width]) for start in range(0, len(columns[0]), width)]
    by_name = {tensor.name: texts for tensor, texts in zip(tensors, columns, strict=True)}
    if set(by_name) != set(task.text) or len({len(texts) for texts in columns}) != 1:
        raise Refusal(400, "inputs", f"expected one input of texts, or as many texts each of {', '.join(task.text)}.")
    return list(zip(*(by_name[name] for name in task.text), strict=True))


def _flat(values: Sequence[Any], name: str) -> list[str]:
    texts: list[str] = []
    for value in values:
        if isinstance(value, list):
            texts += _flat(value, name)
        elif isinstance(value, str):
            texts.append(value)
        else:
            raise Refusal(400, "type", f"input '{name}' holds {str(value)[:20]} where a text is expected.")
    return texts


def _decoded(content: bytes, name: str) -> list[str]:
    texts, place = [], 0
    while place + 4 <= len(content):
        (length,) = struct.unpack_from("<I", content, place)
        place += 4 + length
        try:
            texts.append(content[place - length : place].decode())
        except UnicodeDecodeError as error:
            raise Refusal(400, "encoding", f"a text of input '{name}' is not UTF-8.") from error
    if place != len(content):
        raise Refusal(400, "body", f"the binary data of input '{name}' ends within a text.")
    return texts


def _response(
    body: InferRequest, answers: Sequence[Mapping[str, Any]], fields: Mapping[str, str], name_of_model: str
) -> Response:
    wanted = [each.name for each in body.outputs] or list(fields)
    if unknown := [name for name in wanted if name not in fields]:
        raise Refusal(400, "outputs", f"there is no output '{unknown[0]}'; expected {', '.join(fields)}.")
    all_binary = bool(body.parameters.get("binary_data_output"))
    binary = {each.name: bool(each.parameters.get("binary_data", all_binary)) for each in body.outputs}
    outputs, parts = [], []
    for name in wanted:
        values = [answer.get(name) for answer in answers]
        array = _array(_without_gaps(values, fields[name]))
        described: dict[str, Any] = {
            "name": name,
            "datatype": TYPES.get(array.dtype, "BYTES"),
            "shape": list(array.shape),
        }
        if binary.get(name, all_binary):
            parts.append(_encoded(array))
            described["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            described["data"] = array.ravel().tolist()
        outputs.append(described)
    content = {
        "model_name": name_of_model,
        "model_version": "1",
        **({"id": body.id} if body.id else {}),
        "outputs": outputs,
    }
    if not parts:
        return Response(to_json(content), media_type="application/json")
    head = to_json(content).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return Response(head + b"".join(parts), media_type="application/octet-stream", headers=headers)


def _without_gaps(values: Sequence[Any], datatype: str) -> Sequence[Any]:
    """Return values of which those of empty texts are of the output's type: NaN, in JSON null, and -1."""
    if datatype == "INT64":
        return [-1 if value is None else value for value in values]
    if datatype != "FP32":
        return values
    width = next((len(value) for value in values if isinstance(value, list)), None)
    gap = math.nan if width is None else [math.nan] * width
    return [gap if value is None else value for value in values]


def _array(values: Sequence[Any]) -> NDArray[Any]:
    """Return an output: numbers as they are, anything else as text or JSON."""
    if all(isinstance(value, float) for value in values):
        return np.array(values, np.float32)
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, np.int64)
    lists = all(isinstance(value, list) and value and isinstance(value[0], float) for value in values)
    if lists and len({len(value) for value in values}) == 1:
        return np.array(values, np.float32)
    array = np.empty(len(values), object)
    array[:] = [value if isinstance(value, str) else "" if value is None else to_json(value) for value in values]
    return array


def _encoded(array: NDArray[Any]) -> bytes:
    if array.dtype != object:
        return array.tobytes()
    texts = [text.encode() for text in array]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def output_fields(served: ServedModel, given: TaskInput | None = None) -> dict[str, str]:
    """Return the outputs and their types, of an input such as this one, by default of all columns of the task."""
    model = served.model
    if given is None:
        given = "" if len(model.task.text) == 1 else ("",) * len(model.task.text)
    names = [*model.kind.empty_answer(given)]
    if model.kind.exclusive and model.task.labels:
        names.append("probabilities")
    numbers = {
        "probability": "FP32",
        "score": "FP32",
        "embedding": "FP32",
        "start": "INT64",
        "end": "INT64",
        "place": "INT64",
    }
    return {name: numbers.get(name, "BYTES") for name in names}


async def metadata(request: Request, service: Service) -> dict[str, Any]:
    """Describe a model."""
    served = service.served(request.path_params.get("name"))
    outputs = [
        {"name": name, "datatype": kind, "shape": [-1, -1] if name == "embedding" else [-1]}
        for name, kind in output_fields(served).items()
    ]
    several = len(served.model.task.text) > 1
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [-1, -1] if several else [-1]}]
    return {"name": served.name, "versions": ["1"], "platform": "compress", "inputs": inputs, "outputs": outputs}


async def server(request: Request, service: Service) -> dict[str, Any]:
    """Describe the service."""
    return {"name": "compress", "version": __version__, "extensions": ["binary_tensor_data"]}


def refused(error: Refusal) -> dict[str, Any]:
    """Return the body of a refusal."""
    return {"error": error.message}
