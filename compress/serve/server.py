"""`compress serve FOLDER…`: opens models, checks them, listens, and ends on SIGTERM when everything is answered."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compress.console import Console
from compress.environment import require, usable_cores
from compress.errors import CompressError, UsageError
from compress.model_folder.model_info import INFO_FILE
from compress.publish.pull import opened
from compress.publish.verify import DIGESTS_FILE
from compress.runtime.predictor import Placement
from compress.serve.lossy_log import log
from compress.storage.file_names import check_file_name

if TYPE_CHECKING:
    import uvicorn

    from compress.serve.service import Service

State = tuple[Path, tuple[object, ...]] | None
"""The folder of a model, and what says that it changed: the sizes and times of its files."""
LOCAL = "127.0.0.1"
WATCH_SECONDS, WATCH_PLACE_SECONDS = 2.0, 30.0
"""How often a folder is looked at for changes, and a place elsewhere for a newer version."""
SWITCH_SECONDS = 2e-4
"""After which a thread lets another one run: the model waits for the loop, or the loop for the model, at each step."""


@dataclass(frozen=True)
class ServeOptions:
    """What `compress serve` was asked for."""

    host: str = LOCAL
    port: int = 8000
    threads: int = 1
    """Of each model; each runs rows of its own on one core."""
    max_wait: float = 0.0
    """Milliseconds."""
    queue: int = 256
    key_env: str | None = None
    watch: bool = False
    device: str = "cpu"


def serve(folders: Sequence[str], options: ServeOptions, console: Console) -> None:
    """Serve models until the process is to end."""
    for library in ("starlette", "uvicorn", "httptools", "prometheus_client"):
        require(library, "serve")
    from compress.serve.prometheus_metrics import Metrics
    from compress.serve.served_model import open_served
    from compress.serve.service import Limits, Service

    sys.setswitchinterval(SWITCH_SECONDS)
    named = named_models(folders)
    key = _key(options.key_env)
    if options.threads > usable_cores():
        console.warn(f"--threads {options.threads}: this process may use {usable_cores()}; more threads are slower.")
    if options.host not in (LOCAL, "localhost", "::1") and key is None:
        console.warn(f"{options.host} is reachable by others, and no key is asked for (--key-env NAME).")
    placement = Placement("cuda" if options.device == "cuda" else "cpu")
    service = Service(Limits(queue=options.queue), Metrics(), options.max_wait / 1000, key, options.threads)
    with listen(options.host, options.port) as listening:
        states = dict[str, State]()
        for name, source in named.items():
            folder = opened(source, warn=console.warn)
            with suppress(OSError):
                states[name] = _state_of(folder)  # before it is opened: what changes from here on is a change
            served = open_served(name, folder, placement)
            service.add(served)
            console.note(served.describe())
        service.is_ready = True
        address = f"http://{options.host}:{listening.getsockname()[1]}"
        console.note(f'curl {address}/models/{next(iter(named))}/predict -d \'{{"texts": ["a text"]}}\'')
        asyncio.run(_run(service, listening, named, states, placement, options, console))


def named_models(models: Sequence[str]) -> dict[str, str]:
    """Return addresses of models by name: NAME=MODEL, or the last part; of a target's winner that of its run."""
    named: dict[str, str] = {}
    for given in models:
        name, equals, source = given.partition("=")
        source = source if equals else given
        name = name if equals else _name_of(source)
        try:
            check_file_name(name)
        except ValueError as error:
            raise UsageError(f"the name of a model {error}.", hint="NAME=MODEL gives one") from error
        if name in named:
            raise UsageError(f"{named[name]} and {source} would both be called {name}.", hint="NAME=MODEL names them")
        named[name] = source
    return named


def _name_of(source: str) -> str:
    """Return the run's name of `runs/NAME/winner/cpu`, the name of `zoo/NAME@VERSION`, else the folder's."""
    parts = source.rstrip("/").split("/") if "://" in source else Path(source).absolute().parts
    last = parts[-3] if len(parts) > 3 and parts[-2] == "winner" else parts[-1]
    return last.partition("@")[0]


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"--key-env {variable}: there is no such environment variable, or it is empty.")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"--key-env {variable}: the environment variable holds characters that no key has.")
    return key


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; a UsageError where that cannot be."""
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol named, asyncio sends small answers at once (TCP_NODELAY).
        listening = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except (OSError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        reason = "no host has such a name" if isinstance(error, UnicodeError) else error.strerror or error
        raise UsageError(f"{host}:{port} cannot be listened at: {reason}.", hint="--port 0 takes a free one") from error
    return listening


def make_server(service: Service, console: Console) -> uvicorn.Server:
    """Return the server of a service, with its limits."""
    import uvicorn

    from compress.serve.app import make_app
    from compress.serve.deadline import protocol_with_deadlines

    config = uvicorn.Config(
        make_app(service, console),
        http=protocol_with_deadlines(service.limits.receive, service.limits.send),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=service.limits.connections,
        timeout_graceful_shutdown=service.limits.ending,
    )
    return uvicorn.Server(config)


async def _run(
    service: Service,
    listening: socket.socket,
    named: Mapping[str, str],
    states: Mapping[str, State],
    placement: Placement,
    options: ServeOptions,
    console: Console,
) -> None:
    server = make_server(service, console)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that the one that ends it, raised again, ends with 0
    watching = asyncio.create_task(watch(service, named, states, placement, console)) if options.watch else None
    try:
        await server.serve(sockets=[listening])
    finally:
        if watching is not None:
            watching.cancel()
        await asyncio.to_thread(service.close)


async def watch(
    service: Service, named: Mapping[str, str], states: Mapping[str, State], placement: Placement, console: Console
) -> None:
    """Replace a model whose folder changed or which has a newer version, once the new one has proved itself.

    A folder that is being copied fails until its last file is there. ``states``: of the models that are served.
    """
    from compress.serve.served_model import open_served

    known = {name: states.get(name) for name in named}
    asked = dict.fromkeys(named, time.monotonic())
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        for name, source in named.items():
            if "://" in source and time.monotonic() - asked[name] < WATCH_PLACE_SECONDS:
                continue
            asked[name] = time.monotonic()
            state = await asyncio.to_thread(_state, source)
            if state in (None, known[name]):
                continue
            known[name] = state
            try:
                served = await asyncio.to_thread(open_served, name, state[0], placement)
                await asyncio.to_thread(service.add, served)
            except (CompressError, OSError, ValueError, RuntimeError) as error:
                log(console.warn, f"{name} stays as it is: {getattr(error, 'full_message', error)}")
                continue
            log(console.note, f"replaced. {served.describe()}")


def _state(source: str) -> State:
    """Return the folder that a model is in, and what says that it changed: the sizes and times of its files.

    None where there is none at the moment.
    """
    with suppress(OSError, CompressError):
        return _state_of(opened(source))
    return None


def _state_of(folder: Path) -> State:
    found = [(path, path.stat()) for path in sorted(folder.rglob("*"))]
    if any(path.name in (DIGESTS_FILE, INFO_FILE) for path, _ in found):
        return folder, tuple((str(path), each.st_size, each.st_mtime_ns) for path, each in found)
    return None
