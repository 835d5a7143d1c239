"""The page of a service in Chromium: a text is typed, an answer is shown."""

import time

import pytest

from tests.chromium import chromium
from tests.serve.test_protocols import INPUTS


@pytest.mark.browser
def test_a_text_is_typed_and_answered(service_of, tmp_path):
    with chromium(tmp_path) as browser:
        for kind, given in INPUTS.items():
            browser.get(service_of(kind).address)
            box = browser.find_element("id", "text")
            box.send_keys(given if isinstance(given, str) else "\n".join(given))
            browser.find_element("css selector", "button").click()
            deadline = time.monotonic() + 20
            while not browser.find_element("id", "latency").text and time.monotonic() < deadline:
                time.sleep(0.05)
            assert browser.find_element("id", "status").text == "", kind
            assert browser.find_element("id", "result").text, kind
            assert kind in browser.find_element("id", "title").text
        problems = [each for each in browser.get_log("browser") if each["level"] == "SEVERE"]
        assert problems == []
