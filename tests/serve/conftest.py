"""Tiny exported models of every task kind, and a service of them in this process."""

import io
import json
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import httpx2 as httpx
import pytest

from compress.console import Console
from compress.runtime.predictor import ONE_THREAD
from compress.serve.prometheus_metrics import Metrics
from compress.serve.served_model import open_served
from compress.serve.server import listen, make_server
from compress.serve.service import Limits, Service
from tests.exported_models import exported, model  # noqa: F401  fixtures


@contextmanager
def serving(folders, key=None, max_wait=0.0, **limits):
    """Serve models by name; yields the address, an HTTP client, the service, what was logged, and the sockets."""
    log = io.StringIO()
    service = Service(Limits(**limits), Metrics(), max_wait, key)
    for name, folder in folders.items():
        service.add(open_served(name, folder, ONE_THREAD))
    service.is_ready = True
    listening = listen("127.0.0.1", 0)
    server = make_server(service, Console("human", err=log))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = listening.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=address, timeout=30) as client:
            running = {"client": client, "service": service, "log": log, "server": server, "listening": listening}
            yield SimpleNamespace(address=address, port=port, **running)
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
        service.close()


@pytest.fixture(scope="session")
def service_of(exported):  # noqa: F811
    """Return the running service of one kind's model: ``service_of("regression")``; each is started once."""
    from contextlib import ExitStack

    running = {}
    with ExitStack() as stack:

        def of(kind):
            if kind not in running:
                running[kind] = stack.enter_context(serving({kind: exported(kind)}))
            return running[kind]

        yield of


def lines(text):
    """Return the JSON lines of a log."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
