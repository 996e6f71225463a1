"""Laws of writing: a name always holds a whole file, which one process at a time writes."""

import errno

import pytest

from darn.errors import DarnError
from darn.files import atomic, locked_file
from darn.files._write import is_left_over


def fail(path, error):
    with atomic(path) as temporary:
        temporary.write_text("two, but only hal")
        raise error


def test_atomic_writes_all_or_nothing(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with atomic(path) as temporary:
        temporary.write_text("one")
        assert not path.exists()
        assert temporary.suffix == ".txt"
    assert path.read_text() == "one"
    with pytest.raises(RuntimeError, match="half way"):
        fail(path, RuntimeError("half way"))
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_atomic_makes_a_sentence_of_a_failed_write(number, tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("one")
    with pytest.raises(DarnError) as e:
        fail(path, OSError(number, "as if"))
    assert "\n" not in str(e.value)
    assert "file.txt" in str(e.value)
    assert ("no space" in str(e.value)) == (number != errno.EACCES)
    assert path.read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("name", ["a" * 251 + ".csv", "é" * 125 + ".json", "b" * 255])
def test_a_name_may_be_as_long_as_the_file_system_allows(name, tmp_path):
    with atomic(tmp_path / name) as temporary:
        temporary.write_text("one")
        assert is_left_over(temporary, [name])
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_file_is_written_by_one_process_at_a_time(tmp_path):
    path, other = tmp_path / "new" / "a*.csv", tmp_path / "new" / ".ab-12345678.csv"
    left = tmp_path / "new" / ".a*-12345678.csv"
    with locked_file(path):
        for temporary in (other, left):
            temporary.touch()
        with pytest.raises(DarnError, match="another process is writing"), locked_file(path):
            pass
    with pytest.raises(RuntimeError, match="half way"), locked_file(path):
        raise RuntimeError("half way")
    with locked_file(path):
        assert not left.exists()
        assert other.exists()  # of another name, whatever a pattern would match
    assert [*path.parent.iterdir()] == [other]
