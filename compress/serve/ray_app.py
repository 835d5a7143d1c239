"""A Ray Serve application: `serve run compress.serve.ray_app:build folder=/models/winner`.

Ray starts copies where there are cores. Each holds one model and one queue of rows, as `compress serve` does, and
speaks the same protocols.
"""

from typing import Any

from compress.console import Console
from compress.environment import require
from compress.runtime.predictor import Placement


def build(arguments: dict[str, Any]) -> Any:
    """Return the application for Ray Serve.

    Args:
        arguments: ``folder`` of the model; ``name`` (model), ``threads`` (1), ``queue`` (256 rows a copy).
    """
    serve = require("ray.serve", "ray")
    from starlette.requests import Request
    from starlette.responses import Response

    @serve.deployment
    class Model:
        def __init__(self, folder: str, name: str, threads: int, queue: int) -> None:
            from compress.publish.pull import opened
            from compress.serve.app import make_app
            from compress.serve.prometheus_metrics import Metrics
            from compress.serve.served_model import open_served
            from compress.serve.service import Limits, Service

            self._service = Service(Limits(queue=queue), Metrics(), threads=threads)
            self._service.add(open_served(name, opened(folder), Placement()))
            self._service.is_ready = True
            self._app = make_app(self._service, Console("quiet"))

        async def __call__(self, request: Request) -> Response:
            """Answer one request."""
            body = await request.body()
            sent: list[Any] = []

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            scope = {name: value for name, value in request.scope.items() if name not in ("app", "router", "endpoint")}
            await self._app(scope, receive, send)
            content = b"".join(message.get("body", b"") for message in sent[1:])
            response = Response(content, sent[0]["status"])
            response.raw_headers = list(sent[0]["headers"])
            return response

        def check_health(self) -> None:
            """Ray asks: is it ready?"""
            if not self._service.is_ready:
                raise RuntimeError("it is not ready")

    options = {"name": "model", "threads": 1, "queue": 256, **arguments}
    threads, queue = int(options["threads"]), int(options["queue"])
    deployed: Any = Model
    copies = deployed.options(ray_actor_options={"num_cpus": threads})
    return copies.bind(options["folder"], options["name"], threads, queue)
