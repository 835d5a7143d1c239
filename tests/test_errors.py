from compress.errors import room


def test_bytes_are_told_in_the_unit_that_they_fill():
    assert [room(count) for count in (15, 1536, 2**20, 20 * 2**30)] == ["15 bytes", "1.5 KiB", "1.0 MiB", "20.0 GiB"]
