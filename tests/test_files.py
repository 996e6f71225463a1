"""Laws of writing: a name always holds a whole file."""

import errno

import pytest

from darn.errors import DarnError
from darn.files import atomic


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
