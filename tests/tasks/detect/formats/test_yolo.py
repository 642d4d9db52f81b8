"""YOLO: names of classes in every spelling, labels and outlines, and mistakes with file and line."""

import pytest
from marked_images import CLASSES, OBJECTS, plain, with_mistake, yolo

from foci.errors import DataError
from foci.tasks.detect.reader import parts_of, read_marked_images

YAMLS = [
    "names: ['unused', \"dog & cat\", 狗]",
    "names:\n- unused\n- dog & cat\n- 狗  # the last\n",
    "names:\n  0: unused\n  1: dog & cat\n  2: '狗'\nroboflow:\n  license: x",
    "names: {0: unused, 1: dog & cat, 2: 狗}",
    "names: [unused,\n   dog & cat,\n   狗]\nnc: 3",
]


@pytest.mark.parametrize("text", YAMLS)
@pytest.mark.parametrize(
    "base", ["path: .\ntrain: pictures/images\nval: pictures/images\n", "train: ../pictures/images\n"]
)
def test_yaml_of_yolo(tmp_path, text, base):
    yolo(tmp_path / "pictures")
    (tmp_path / "pictures" / "data.yaml").unlink()
    (tmp_path / "my.yaml").write_text(f"# pets\n{base}{text}", encoding="utf-8")
    for path in (tmp_path, tmp_path / "my.yaml"):
        assert plain(read_marked_images(path).images) == OBJECTS
    assert ("valid" in parts_of(str(tmp_path))) == ("val:" in base)


def test_names_of_yolo_in_a_list_and_labels_beside_the_images(tmp_path):
    folder = yolo(tmp_path / "data")
    (folder / "data.yaml").unlink()
    with pytest.raises(DataError, match=r"labels of YOLO are numbers, and their names are in none of .*classes.txt"):
        read_marked_images(folder)
    (folder / "classes.txt").write_text("\n".join(CLASSES), encoding="utf-8")
    assert plain(read_marked_images(folder).images) == OBJECTS
    for path in [*(folder / "images").iterdir(), *(folder / "labels").iterdir()]:
        path.rename(folder / path.name)
    (folder / "images").rmdir()
    assert plain(read_marked_images(folder).images) == OBJECTS
    (folder / "list.txt").write_text("a.png\nc.png\n", encoding="utf-8")
    assert [*plain(read_marked_images(folder / "list.txt").images)] == ["a", "c"]


def test_an_outline_of_yolo_is_its_box(tmp_path):
    folder = yolo(tmp_path)
    (folder / "labels" / "c.txt").write_text("2 0.25 0.5 0.75 0.25 0.5 1.0\n", encoding="utf-8")
    assert plain(read_marked_images(folder).images)["c"] == [("狗", (10, 10, 30, 40))]


MISTAKES = [
    (yolo, "labels/b.txt", "2 ", "3 ", "b.txt, line 1: the class is 3, but there are the classes 0 to 2"),
    (yolo, "labels/b.txt", "2 ", "2 x", "b.txt, line 1: .*is not all numbers"),
    (yolo, "labels/b.txt", "2 ", "2 0.5 ", "b.txt, line 1: 6 numbers, expected 5"),
    (yolo, "labels/b.txt", "2 0.", "2 150.", "b.txt, line 1: a number is far from 0 to 1"),
    (yolo, "data.yaml", "[", "dogs [", "data.yaml: names is .* expected a list"),
]


@pytest.mark.parametrize(("form", "name", "old", "new", "message"), MISTAKES)
def test_mistakes_are_named_with_file_and_line(tmp_path, form, name, old, new, message):
    path = with_mistake(form, tmp_path, name, old, new)
    with pytest.raises(DataError, match=message):
        read_marked_images(path)
