"""A limit of money under many threads, and the pace of requests."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from compress.label.ask_service import Pace, Stopped, back_off
from compress.label.spending import LimitReached, Spending


def test_the_limit_holds_with_many_requests_at_once():
    spending = Spending(limit=10.0, spent=2.0)

    def request(number):
        try:
            spending.reserve(1.0)
        except LimitReached:
            return 0
        spending.settle(1.0, 0.7)
        return 1

    with ThreadPoolExecutor(8) as pool:
        sent = sum(pool.map(request, range(100)))
    assert spending.spent == pytest.approx(2.0 + 0.7 * sent)
    assert 9.0 < spending.spent <= 10.0


def test_no_limit_and_no_prices():
    spending = Spending(limit=None, spent=0.0)
    for _ in range(3):
        spending.reserve(1e6)


def test_a_stopped_command_sends_nothing():
    pace = Pace()
    pace.wait_for_turn()
    pace.stop.set()
    with pytest.raises(Stopped):
        pace.wait_for_turn()


def test_requests_are_spread_over_the_minute_and_wait_for_pauses():
    waits = []
    pace = Pace(30, clock=lambda: 100.0, wait=lambda stop, seconds: bool(waits.append(seconds)))
    for _ in range(3):
        pace.wait_for_turn()
    pace.pause(60.0)
    pace.wait_for_turn()
    assert waits == pytest.approx([2.0, 4.0, 60.0])


def test_requests_that_wait_for_their_turn_wait_for_a_pause_too():
    now, waits = [100.0], []

    def wait(stop, seconds):
        waits.append(seconds)
        if len(waits) == 1:
            pace.pause(60.0)  # of another request
        now[0] += seconds

    pace = Pace(30, clock=lambda: now[0], wait=wait)
    pace.wait_for_turn()
    pace.wait_for_turn()
    assert waits == pytest.approx([2.0, 58.0])
    assert now[0] == pytest.approx(160.0)


def test_waits_double_up_to_a_minute():
    assert all(0.5 * 2**retry <= back_off(retry) <= 2**retry for retry in range(6))
    assert back_off(20) <= 60.0
