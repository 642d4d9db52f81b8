import os

import pytest
from disguises import DISGUISES, no_waiting

from foci.files import open_regular, read_bytes, read_text


@pytest.mark.parametrize("disguise", DISGUISES)
def test_only_regular_files_are_opened(tmp_path, disguise):
    disguise(tmp_path / "x")
    for opened in (open_regular, read_bytes, read_text):
        with no_waiting(), pytest.raises(OSError, match="is a pipe or a device, expected a regular file"):
            opened(tmp_path / "x")


def test_a_pipe_with_a_writer_is_no_file_either():
    """As in `foci train translate <(cat config.toml)`: it can be read only once, and data is read more than once."""
    reading, writing = os.pipe()
    os.write(writing, b"seed = 3")
    os.close(writing)
    with no_waiting(), pytest.raises(OSError, match="is a pipe"):
        read_bytes(f"/dev/fd/{reading}")
    os.close(reading)


def test_a_link_to_a_file_is_one(tmp_path):
    (tmp_path / "file").write_text("ä", encoding="utf-8")
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link") == "ä"
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "missing")


def test_files_that_are_read_whole_have_a_bound(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bytes(tmp_path / "x", 5) == b"12345"
    with pytest.raises(OSError, match="has 5 bytes, expected at most 4"):
        read_bytes(tmp_path / "x", 4)
    os.truncate(tmp_path / "x", 1 << 40)  # takes no place on the disk
    with no_waiting(), pytest.raises(OSError, match="expected at most 268,435,456"):
        read_text(tmp_path / "x")
