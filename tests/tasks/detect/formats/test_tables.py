"""JSONL and CSV: mistakes with file and line."""

import pytest
from marked_images import csv, jsonl, with_mistake

from foci.errors import DataError
from foci.tasks.detect.reader import read_marked_images

MISTAKES = [
    (jsonl, "data.jsonl", '"objects"', '"things"', "data.jsonl, line 1: no field 'objects', expected \\{"),
    (jsonl, "data.jsonl", "[7, 11, 29, 102]", "[7, 11, 29]", "data.jsonl, line 2: the box of '狗' is \\[7, 11, 29\\]"),
    (jsonl, "data.jsonl", '"label": "dog & cat", ', "", "data.jsonl, line 1: an object has no label"),
    (csv, "data.csv", "b.png,7,狗,7", "b.png,7,狗,x7", "data.csv, line 4: class '狗' with the box 'x7, 11, 29, 102'"),
    (csv, "data.csv", "xmin", "xmim", "data.csv, line 1: no column 'left' or 'xmin' or 'x1'"),
    (csv, "data.csv", "c.png,7,,", "c.png,7,狗,", "data.csv, line 5: class '狗' with the box ', , , '"),
]


@pytest.mark.parametrize(("form", "name", "old", "new", "message"), MISTAKES)
def test_mistakes_are_named_with_file_and_line(tmp_path, form, name, old, new, message):
    path = with_mistake(form, tmp_path, name, old, new)
    with pytest.raises(DataError, match=message):
        read_marked_images(path)
