"""Tags as corpora of Chinese and others write them, and what separates columns."""

import pytest

from foci.tasks.tag.reader import read_tagged


def spans(sentence):
    return [(sentence.text[start:end], label) for start, end, label in sentence.spans]


WORDS = [*"叶老桂在", "上", "海", "住"]
TAGGED = {
    "BIO": "B-name I-name I-name O B-loc I-loc O",
    "BMES": "B-name M-name E-name O B-loc E-loc O",
    "BMEWO": "B-name M-name E-name O B-loc E-loc W-x",
    "B_LOC": "B_name I_name I_name O B_loc I_loc O",
    "LOC-B": "name-B name-M name-E O loc-B loc-E O",
    "LOC_B": "name_B name_I name_I O loc_B loc_I O",
}


@pytest.mark.parametrize("form", TAGGED)
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_tags_in_every_form(form, separator, tmp_path):
    path = tmp_path / "a.txt"
    rows = [f"{word}{separator}{tag}" for word, tag in zip(WORDS, TAGGED[form].split())]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    (found,) = read_tagged(path).sentences
    expected = [("叶 老 桂", "name"), ("上 海", "loc"), *([("住", "x")] if form == "BMEWO" else [])]
    assert spans(found) == expected


def test_word_segmentation_by_bare_tags(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("图 B\n书 M\n馆 E\n在 S\n上 B\n海 E\n", encoding="utf-8")
    found = read_tagged(path)
    assert found.scheme == "BIOES"
    assert [text for text, _ in spans(found.sentences[0])] == ["图 书 馆", "在", "上 海"]


def test_labels_that_only_look_like_tags_stay_labels(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a NOUN\nb PART_S\nc VERB\n", encoding="utf-8")
    assert read_tagged(path).scheme == "plain"


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_only_blanks_and_tabs_separate_columns(separator, tmp_path):
    path = tmp_path / "a.txt"
    words = ["10\u00a0000", "\u3000", "a\u2009b", "\u00a0x"]
    path.write_text("".join(f"{word}{separator}O\n" for word in words) + f"y{separator}B-X\n", encoding="utf-8")
    (found,) = read_tagged(path).sentences
    assert found.tokens == [*words, "y"]
