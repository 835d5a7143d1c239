import pytest

from compress.storage.file_names import MAX_NAME_LENGTH, check_file_name


@pytest.mark.parametrize("name", ["films", "a.b-c_d", "0", "a" * MAX_NAME_LENGTH])
def test_plain_names_are_accepted(name):
    assert check_file_name(name) == name


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "a b", "a\n", "-rf", "é", "a\0", "\\x"])
def test_names_that_could_leave_or_hide_in_a_folder_are_refused(name):
    with pytest.raises(ValueError, match="starts with a letter or digit"):
        check_file_name(name)


def test_long_names_are_refused():
    with pytest.raises(ValueError, match="may hold up to 100 letters"):
        check_file_name("a" * 250)
