"""Whether the model hub can be reached."""

from __future__ import annotations

import os
import urllib.error
import urllib.request

HUB = "https://huggingface.co"


def hub_state(timeout: float = 3.0) -> str:
    """Whether the model hub answers: ``reachable``, or why not."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "switched off by HF_HUB_OFFLINE"
    address = os.environ.get("HF_ENDPOINT", HUB)
    if not address.startswith(("http://", "https://")):
        return f"HF_ENDPOINT is no address: {address}"
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:
        return "reachable"  # an answer is an answer, even "not allowed"
    except (OSError, ValueError) as exc:
        return f"not reachable ({getattr(exc, 'reason', exc)})"
    return "reachable"
