"""Chromium without a window, and a server of files on this computer."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


@contextmanager
def chromium(work: Path) -> Iterator[Any]:
    """Open Chromium with a profile in ``work``; skips the test where it or its driver is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binaries = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(binaries):
        pytest.skip("chromium or its driver is not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binaries[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *QUIET):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={work / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(binaries[1]))
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def serve_folder(folder: Path) -> tuple[str, Callable[[], None]]:
    """Serve a folder on this computer; returns the address and a function that stops the server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return f"http://127.0.0.1:{server.server_port}/", stop
