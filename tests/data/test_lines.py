import gzip
import io
import itertools
import lzma
import os

import pytest
from disguises import DISGUISES, no_waiting

from foci.data import lines
from foci.data.lines import Fault, open_bytes, read_lines
from foci.data.tables import json_objects
from foci.errors import DataError

PACKERS = {"gz": gzip.compress, "xz": lzma.compress}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_data_is_a_file(tmp_path, disguise):
    disguise(tmp_path / "x.txt")
    with no_waiting(), pytest.raises(DataError, match=r"x.txt: cannot be opened \(is a pipe or a device, expected a"):
        list(read_lines(tmp_path / "x.txt"))


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("content", [b"\0", b"a\n", b"\r", b"{}\n"])
def test_what_unpacks_to_absurdly_much_is_refused_early(tmp_path, packer, content, monkeypatch):
    monkeypatch.setattr(lines, "UNPACKED", 1 << 20)
    path = tmp_path / f"bomb.jsonl.{packer}"
    path.write_bytes(PACKERS[packer](content * ((1 << 23) // len(content))))
    before = itertools.islice(read_lines(path, 10_000_000), (1 << 21) // len(content))
    with pytest.raises(DataError, match="unpacks to more than 200 times its size .* unpack it and name"):
        list(before)
    with pytest.raises(DataError, match="unpacks to more than 200 times"), open_bytes(path) as file:
        file.read()


@pytest.mark.parametrize("packer", PACKERS)
def test_what_unpacks_to_much_but_little_for_its_size_is_read(tmp_path, packer, monkeypatch):
    monkeypatch.setattr(lines, "UNPACKED", 1 << 10)
    expected = [f"{number} ä" for number in range(30_000)]
    path = tmp_path / f"x.txt.{packer}"
    path.write_bytes(PACKERS[packer]("".join(f"{line}\n" for line in expected).encode()))
    assert list(read_lines(path)) == expected


def test_a_line_without_an_end_ends_the_file(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("good\n")
    os.truncate(path, 1 << 40)  # which takes no place on the disk
    monkeypatch.setattr(lines, "LONGEST_RUN", 1 << 20)
    with no_waiting():
        good, fault = read_lines(path)
    assert good == "good"
    assert fault[1:3] == (2, "endless line")
    assert "has no end within 1,048,576 bytes, and nothing more was read" in fault.reason
    path.write_bytes(b"good\r" * 400_000)  # more than it, and no line feed
    with no_waiting():
        (fault,) = read_lines(path)
    assert fault.kind == "endless line"


def test_a_line_that_is_too_long_is_left_out(tmp_path):
    (tmp_path / "x.txt").write_text(f"good\n{'x' * 50_000}\nbetter\n")
    good, fault, better = read_lines(tmp_path / "x.txt", 100)
    assert (good, fault.kind, better) == ("good", "over-long line", "better")


def test_half_of_a_surrogate_pair_is_no_text_wherever_it_stands(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "\\ud83d\\ude00"}\n{"a": "b", "c": [{"d": "x\\uD83d"}]}\n{"a": "\\ud55c"}\n')
    good, fault, other = json_objects(path)
    assert (good.content, other.content) == ({"a": "😀"}, {"a": "한"})
    assert str(fault) == (
        f"{path}, line 2: field 'c' holds half of a surrogate pair (\\ud800 to \\udfff), which is no character."
    )


def test_damage_in_the_middle_of_a_compressed_file(tmp_path):
    """What precedes it is still read."""
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb") as file:
        for number in range(100_000):
            file.write(f"{number**3}\n".encode())
    (tmp_path / "x.gz").write_bytes(content.getvalue()[:-5000])
    *good, fault = read_lines(tmp_path / "x.gz")
    assert good[:3] == ["0", "1", "8"]
    assert len(good) > 50_000
    assert isinstance(fault, Fault)
    assert fault.kind == "damaged file"
