"""The routes of the service: each protocol's, health, metrics, the description, and a page to type a text into."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from compress.console import Console, to_json
from compress.export.web.export_web import PAGE as WEB_PAGE
from compress.serve.lossy_log import log
from compress.serve.openapi import describe
from compress.serve.protocols import hugging_face, open_inference, openai_embeddings, plain
from compress.serve.protocols import text_embeddings_inference as tei
from compress.serve.service import Refusal, Service

PAGE = Path(__file__).with_name("page")
FILES = {
    "app.js": (PAGE / "app.js", "text/javascript"),
    "show.js": (WEB_PAGE / "show.js", "text/javascript"),
    "style.css": (WEB_PAGE / "style.css", "text/css"),
}
"""Files of the page; those that show an answer are the exported page's."""

Endpoint = Callable[[Request, Service], Awaitable[Any]]
Refused = Callable[[Refusal], dict[str, Any]]
OPEN = ("/health/live", "/health/ready", "/metrics", "/v2/health/live", "/v2/health/ready")
"""Paths that need no key."""

ROUTES: tuple[tuple[str, str, Endpoint, Refused], ...] = (
    ("POST", "/predict", tei.predict, tei.refused),
    ("POST", "/embed", tei.embed, tei.refused),
    ("POST", "/rerank", tei.rerank, tei.refused),
    ("GET", "/info", tei.info, tei.refused),
    ("POST", "/v1/embeddings", openai_embeddings.embeddings, openai_embeddings.refused),
    ("GET", "/v2", open_inference.server, open_inference.refused),
    ("GET", "/v2/models/{name}", open_inference.metadata, open_inference.refused),
    ("GET", "/v2/models/{name}/versions/1", open_inference.metadata, open_inference.refused),
    ("POST", "/v2/models/{name}/infer", open_inference.infer, open_inference.refused),
    ("POST", "/v2/models/{name}/versions/1/infer", open_inference.infer, open_inference.refused),
    ("POST", "/models/{name}/predict", plain.predict, plain.refused),
    ("POST", "/models/{name}", hugging_face.call, hugging_face.refused),
    ("POST", "/", hugging_face.call, hugging_face.refused),
)


def make_app(service: Service, console: Console) -> Starlette:
    """Return the application of a service."""

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(request: Request) -> Response:
        name = request.path_params.get("name")
        is_ready = service.is_ready and (name is None or name in service.names)
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(_: Request) -> Response:
        described = [
            {"id": name, "object": "model", "kind": service.served(name).model.task.kind} for name in service.names
        ]
        return JSONResponse({"object": "list", "data": described})

    async def openapi(_: Request) -> Response:
        return JSONResponse(describe(service))

    async def page(_: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def file(request: Request) -> Response:
        path, kind = FILES[request.path_params["file"]]
        return FileResponse(path, media_type=kind)

    routes = [
        Route("/health/live", live),
        Route("/health/ready", ready),
        Route("/health", ready),
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        Route("/v2/models/{name}/ready", ready),
        Route("/metrics", metrics),
        Route("/models", models),
        Route("/v1/models", models),
        Route("/openapi.json", openapi),
        Route("/page/{file}", _known(file)),
    ]
    ours = [
        Route(path, partial(_answer, endpoint=endpoint, refused=refused, service=service), methods=[method])
        for method, path, endpoint, refused in ROUTES
    ]
    app = Starlette(routes=[*routes, *ours, Route("/", page)], exception_handlers={404: _not_found, 405: _wrong_method})
    return _Logged(app, service, console)  # type: ignore[return-value]


def _known(file: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def found(request: Request) -> Response:
        return await file(request) if request.path_params["file"] in FILES else await _not_found(request, None)

    return found


async def _answer(request: Request, endpoint: Endpoint, refused: Refused, service: Service) -> Response:
    try:
        content = await endpoint(request, service)
    except Refusal as refusal:
        service.metrics.refusal(refusal.reason)
        headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else None
        return JSONResponse(refused(refusal), refusal.status, headers)
    except ClientDisconnect:
        service.metrics.refusal("client left")
        return Response(status_code=499)
    if isinstance(content, Response):
        return content
    return Response(to_json(content), media_type="application/json")


async def _not_found(request: Request, _: Exception | None) -> Response:
    paths = ", ".join(dict.fromkeys(path for _, path, *_ in ROUTES))
    return JSONResponse({"error": f"there is nothing at {request.url.path[:100]}; try {paths}, /openapi.json"}, 404)


async def _wrong_method(request: Request, _: Exception) -> Response:
    return JSONResponse({"error": f"{request.url.path[:100]} does not take {request.method}."}, 405)


class _Logged:
    """Checks the key, counts, and writes a line for each request, without texts."""

    def __init__(self, app: Starlette, service: Service, console: Console) -> None:
        self._app, self._service, self._console = app, service, console

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def sending(message: Mapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            if scope["path"] not in OPEN:
                self._service.check_key(Request(scope))
            await self._app(scope, receive, sending)
        except Refusal as refusal:
            self._service.metrics.refusal(refusal.reason)
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
            await JSONResponse({"error": refusal.message}, refusal.status, headers)(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._service.metrics.request(route, status)
            if scope["path"] not in OPEN:
                seconds = round(1e3 * (time.perf_counter() - start), 2)
                line = {"method": scope["method"], "path": scope["path"][:200], "status": status, "ms": seconds}
                log(self._console.note, json.dumps({"time": round(time.time(), 3), **line}))
