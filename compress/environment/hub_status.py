"""Whether the model hub can be reached."""

from __future__ import annotations

import os
from threading import Thread

HUB = "https://huggingface.co"


def hub_state(timeout: float = 3.0) -> str:
    """Return ``reachable``, or why the model hub is not, after at most ``timeout`` seconds."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "switched off by HF_HUB_OFFLINE"
    address = os.environ.get("HF_ENDPOINT", HUB)
    replies: list[str] = []
    # The limit of a request does not include looking up the address: without a network that takes seconds.
    probe = Thread(target=lambda: replies.append(_request(address, timeout)), daemon=True)
    probe.start()
    probe.join(timeout)
    return replies[0] if replies else f"not reachable (no reply within {timeout:g} s)"


def _request(address: str, timeout: float) -> str:
    import urllib.error
    import urllib.request

    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:
        return "reachable"  # any reply is a reply, even "not allowed"
    except (OSError, ValueError) as error:
        return f"not reachable ({getattr(error, 'reason', error)})"
    return "reachable"
