"""Pascal VOC: corners from 0 or 1, lists, and mistakes with file and line."""

import pytest
from marked_images import OBJECTS, jsonl, plain, voc, with_mistake

from foci.errors import DataError
from foci.tasks.detect.reader import parts_of, read_marked_images


def test_corners_of_voc_are_guessed_or_given(tmp_path):
    zero = voc(tmp_path / "zero", base=0)
    said = []
    found = read_marked_images(zero, log=said.append)
    assert (plain(found.images), found.corners) == (OBJECTS, 0)
    assert "edges from 0: 0 boxes touch 1" in said[0]
    one = voc(tmp_path / "one")
    assert plain(read_marked_images(one, corners=1).images) == OBJECTS
    assert plain(read_marked_images(one, corners=0).images)["b"] == [("狗", (8, 12, 29, 102))]
    assert read_marked_images(jsonl(tmp_path / "other"), corners=1).corners is None


def test_lists_of_voc(tmp_path):
    folder = voc(tmp_path / "VOCdevkit" / "VOC2012")
    sets = folder / "ImageSets" / "Main"
    sets.mkdir(parents=True)
    for name, content in {"train": "a\nc\n", "val": "b\n", "dog_train": "a 1\n"}.items():
        (sets / f"{name}.txt").write_text(content, encoding="utf-8")
    assert parts_of(str(tmp_path / "VOCdevkit")) == {"train": str(sets / "train.txt"), "valid": str(sets / "val.txt")}
    assert [*plain(read_marked_images(tmp_path / "VOCdevkit").images)] == ["a", "c"]
    assert [*plain(read_marked_images(sets / "val.txt").images)] == ["b"]
    with pytest.raises(DataError, match=r"dog_train.txt, line 1: 2 words, expected one name"):
        read_marked_images(sets / "dog_train.txt")
    (sets / "train.txt").write_text("a\nzebra\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"train.txt, line 2: .*zebra.xml: there is no such file"):
        read_marked_images(tmp_path / "VOCdevkit")


MISTAKES = [
    (voc, "Annotations/a.xml", ">31<", ">x31<", "a.xml, line 4: <xmax> of 'dog & cat' is 'x31', expected a number"),
    (voc, "Annotations/a.xml", "<ymax>47</ymax>", "", "a.xml, line 2: 'dog & cat' has no <ymax>"),
    (voc, "Annotations/a.xml", "</annotation>", "", "a.xml, line \\d+: no XML that can be read"),
    (voc, "Annotations/a.xml", "annotation>", "html>", "a.xml, line 1: the file holds <html>"),
    (voc, "Annotations/b.xml", "<name>狗</name>", "<name> </name>", "b.xml, line 2: <object> has no <name>"),
]


@pytest.mark.parametrize(("form", "name", "old", "new", "message"), MISTAKES)
def test_mistakes_are_named_with_file_and_line(tmp_path, form, name, old, new, message):
    path = with_mistake(form, tmp_path, name, old, new)
    with pytest.raises(DataError, match=message):
        read_marked_images(path)
