import logging
import os
import sys
from threading import Event, Thread

from compress.environment.libraries import STDERR, silent_native_code


def test_threads_take_turns_so_that_everything_is_restored():
    before = os.fstat(STDERR).st_ino, sys.stdout, sys.stderr, logging.root.manager.disable
    entered, waiting = Event(), Event()

    def second():
        waiting.set()
        with silent_native_code():
            entered.set()

    with silent_native_code():
        thread = Thread(target=second)
        thread.start()
        waiting.wait()
        assert not entered.wait(0.05)
    thread.join()
    assert entered.is_set()
    assert (os.fstat(STDERR).st_ino, sys.stdout, sys.stderr, logging.root.manager.disable) == before


def test_what_is_written_inside_is_dropped(capfd):
    with silent_native_code(), silent_native_code():
        os.write(STDERR, b"native")
        sys.stderr.write("library")
        sys.stdout.write("library")
    os.write(STDERR, b"ours")
    assert capfd.readouterr() == ("", "ours")
