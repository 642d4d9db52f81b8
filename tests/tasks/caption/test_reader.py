"""Captions in each format become the same entries; what is wrong is named with its file and line."""

import json

import pytest

from foci.errors import ConfigError, DataError
from foci.tasks.caption.reader import CaptionedImage, read_captions
from foci.tasks.caption.task import Caption
from foci.tasks.frame import config as configs

DOG = ("A dog runs .", "一只狗在跑。", 'كلب, "يجري"')
CAT = ("A cat #1 sits .",)
TOKEN = "".join(f"dog.jpg#{number}\t{text}\n" for number, text in enumerate(DOG)) + f"cat.jpg#0\t{CAT[0]}\n"
FLICKR_CN = "".join(f"dog.jpg#zhc#{number} {text}\n" for number, text in enumerate(DOG)) + f"cat.jpg#enc#0 {CAT[0]}\n"
KARPATHY = {
    "dataset": "x",
    "images": [
        {"filename": "dog.jpg", "sentences": [{"raw": text, "tokens": ["x"]} for text in DOG], "split": "train"},
        {"filename": "cat.jpg", "sentences": [{"tokens": CAT[0].split()}], "split": "val"},
    ],
}
ROWS = [("dog.jpg", text) for text in DOG] + [("cat.jpg", CAT[0])]
TSV = "\n".join("\t".join(row) for row in [("image", "caption"), *ROWS])
CSV = "\n".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in ROWS)
JSONL = "\n".join(
    json.dumps(one) for one in ({"image": "dog.jpg", "captions": DOG}, {"image": "cat.jpg", "caption": CAT[0]})
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Flickr8k.token.txt", TOKEN),
        ("results.token", TOKEN),
        ("zh.caption.txt", FLICKR_CN),
        ("dataset_x.json", json.dumps(KARPATHY)),
        ("x.tsv", TSV),
        ("captions.txt", "image,caption\n" + CSV),
        ("x.csv", "image,caption\n" + CSV),
        ("x.jsonl", JSONL),
        ("x.json", JSONL),
    ],
)
def test_every_format_gives_the_same(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    found = read_captions(path)
    assert [one[:2] for one in found] == [(str(tmp_path / "dog.jpg"), DOG), (str(tmp_path / "cat.jpg"), CAT)]
    (tmp_path / "images").mkdir()
    assert read_captions(path, images=tmp_path / "images")[1].image == str(tmp_path / "images" / "cat.jpg")
    (tmp_path / "names.txt").write_text("cat\nbird.jpg\n")
    messages = []
    assert read_captions(path, only=tmp_path / "names.txt", log=messages.append) == found[1:]
    assert "1 of 2 images have no captions" in messages[-1]


def test_parts_are_those_of_the_file_or_by_a_hash_of_the_image(tmp_path):
    path = tmp_path / "dataset.json"
    images = [
        {"filename": f"{name}.jpg", "filepath": "val2014", "sentences": [{"raw": "x"}], "split": name}
        for name in ("train", "restval", "val", "test")
    ]
    path.write_text(json.dumps({"images": images}))
    task = Caption(
        configs.configure(Caption.Config, {"data": {"path": "given", "valid_share": 0.2, "test_share": 0.3}}, "test")
    )
    parts = task.split(read_captions(path), lambda text: None)
    assert [[one.image[len(str(tmp_path)) :] for one in part] for part in parts] == [
        ["/val2014/train.jpg", "/val2014/restval.jpg"], ["/val2014/val.jpg"], ["/val2014/test.jpg"]
    ]  # fmt: skip
    path = tmp_path / "x.tsv"
    path.write_text("split\tcaption\timage\ntest\tx\ta.jpg\n\tx\tb.jpg\n")
    assert [one.part for one in read_captions(path)] == ["test", ""]
    entries = [CaptionedImage(f"{number}.jpg", ("x",)) for number in range(20)]
    by_hash = task.split(entries, lambda text: None)
    assert all(by_hash)
    assert sorted(one for part in by_hash for one in part) == sorted(entries)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"a.jpg#0\tone\nno image here\n", "x.txt, line 2: 'no image here' has no image, expected name.jpg#0"),
        ("x.txt", b"a.jpg#0\tone\na.jpg#1\t \n", "x.txt, line 2: the caption is empty"),
        ("x.txt", b"#0\tone\n", "x.txt, line 1: the name of the image is empty"),
        ("x.txt", b"a.jpg#0\tone\na.jpg#1\t\xff\n", "x.txt, line 2: byte 9 of the line is not UTF-8"),
        ("x.txt", b"", "x.txt, line 1: no captions, the file is empty"),
        ("x.tsv", b"picture\tcaption\n", "x.tsv, line 1: no column 'image' or"),
        ("x.csv", b"image,caption,split\na.jpg,x,tset\n", "x.csv, line 2: the split is 'tset'. Did you mean 'test'"),
        ("x.jsonl", b'{"image": "a.jpg"}', "x.jsonl, line 1: no field 'caption' or 'captions'"),
        ("x.jsonl", b'{"image": "a.jpg", "captions": [3]}', "line 1: field 'image' must be a text, and 'captions'"),
        ("x.jsonl", b'{"image": "a.jpg", "captions": []}', "x.jsonl, line 1: the caption is empty"),
        ("x.json", b'{"images": [{"filename": "a.jpg"}]}', "x.json, line 1: image 1 of the file is not as expected"),
        ("x.json", b'{"images": [\n{"filename": ', "x.json, line 1: not a JSON object"),
    ],
)
def test_faults_name_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_captions(tmp_path / name)
    assert message in str(caught.value)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_captions(tmp_path / "x.txt")
    with pytest.raises(ConfigError, match="is a folder, expected the file"):
        read_captions(tmp_path)
    (tmp_path / "x.txt").write_text(TOKEN)
    with pytest.raises(DataError, match="is not a folder"):
        read_captions(tmp_path / "x.txt", images=tmp_path / "images")
    (tmp_path / "names.txt").write_text("bird.jpg\n")
    with pytest.raises(DataError, match="none of its 1 names"):
        read_captions(tmp_path / "x.txt", only=tmp_path / "names.txt")
    (tmp_path / "x.pdf").write_text(TOKEN)
    with pytest.raises(ConfigError, match="expected captions as"):
        read_captions(tmp_path / "x.pdf")
