import errno
import os

import pytest
from safetensors import SafetensorError

from compress.errors import CompressError, UsageError, format_bytes, nearest, unexpected


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "model.onnx"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_reported_whoever_meets_it(error):
    result = unexpected(error)
    assert "could not be written" in result.message
    assert "No space left on device" in result.message
    assert "free some disk space" in result.hint


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_used_is_the_users_to_mend(number):
    failure = unexpected(OSError(number, os.strerror(number), "a long text " * 99))
    assert isinstance(failure, UsageError)
    assert failure.message.endswith(f"a long t cannot be used: {os.strerror(number)}.")


def test_what_nobody_knows_is_reported_with_its_type():
    assert unexpected(KeyError("x")).message == "unexpected failure: KeyError: 'x'"


def test_bytes_are_reported_in_the_unit_that_they_fill():
    assert [format_bytes(count) for count in (15, 1536, 2**20, 20 * 2**30)] == [
        "15 bytes",
        "1.5 KiB",
        "1.0 MiB",
        "20.0 GiB",
    ]


def test_a_message_that_ends_in_a_question_has_no_full_stop():
    names = [f"name{number}" for number in range(30)]
    assert CompressError(f"no column 'nam7'{nearest('nam7', names)}.").message.endswith("did you mean name7?")
    assert CompressError("no column 'x'.").message == "no column 'x'."
