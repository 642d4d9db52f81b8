"""Error rates of transcripts, by the definition of the edit distance."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foci.errors import ConfigError
from foci.metrics.attention import diagonality
from foci.metrics.error_rates import (
    ErrorCounts,
    character_errors,
    differences,
    sentence_errors,
    word_errors,
    words_note,
)

pytest.importorskip("jiwer")

WORDS = st.lists(st.sampled_from(["a", "b", "是", "c"]), min_size=1, max_size=6)


def distance(one, other):
    """The edit distance as it is defined."""
    if not one or not other:
        return len(one) + len(other)
    same = one[0] == other[0]
    return min(distance(one[1:], other[1:]) + (not same), distance(one[1:], other) + 1, distance(one, other[1:]) + 1)


@settings(max_examples=40)
@given(said=WORDS, heard=WORDS)
def test_counts_are_an_edit_distance(said, heard):
    counts = word_errors([" ".join(said)], [" ".join(heard)])
    assert counts.errors == distance(said, heard)
    assert counts.hits + counts.substitutions + counts.deletions == len(said)
    assert counts.hits + counts.substitutions + counts.insertions == len(heard)
    assert counts.rate == pytest.approx(counts.errors / len(said))
    found = differences([" ".join(said)], [" ".join(heard)], 1)
    assert (found[0].counts if found else counts).errors == counts.errors
    assert bool(found) == (said != heard)


def test_all_utterances_count_together():
    assert word_errors(["a b c", "d"], ["a b c", "e"]).rate == 0.25
    assert character_errors(["ab", "c"], ["ab", ""]).rate == pytest.approx(1 / 3)
    assert sentence_errors(["a b", "c", "d"], ["a  b", "c", "e"]) == pytest.approx(1 / 3)
    assert word_errors(["a\tb"], ["a b"]).errors == 0


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("今 天 天 气", "今天天气", 0),
        ("今天天气 。", "今天 天汽。", 1),
        ("今日は 晴れ", "今日は晴れ", 0),
        ("สวัสดี ครับ", "สวัสดีครับ", 0),
        ("我 用 foci", "我用foci", 0),
        ("a b", "ab", 1),
        ("오늘 날씨", "오늘날씨", 1),
    ],
)
def test_spaces_next_to_scripts_that_have_none_are_no_characters(said, heard, errors):
    assert character_errors([said], [heard]).errors == errors
    assert sentence_errors([said], [heard]) == (errors > 0)


def test_normal_forms_are_no_errors_and_words_without_spaces_are_noted():
    text = "Tiếng Việt rất đẹp"
    for one, other in ((text, unicodedata.normalize("NFD", text)), (unicodedata.normalize("NFD", text), text)):
        assert word_errors([one], [other]).errors == character_errors([one], [other]).errors == 0
        assert sentence_errors([one], [other]) == 0
        assert differences([one], [other], 5) == []
    assert words_note([text, "오늘 날씨"]) is None
    assert all(words_note([text]) for text in ("今天天气", "今日は晴れ", "วันนี้", "ဒီနေ့"))


def test_differences_are_marked_worst_first():
    found = differences(["yes no", "up down left", "same"], ["yes go", "right down left now oh", "same"], 5)
    assert [one.number for one in found] == [1, 0]
    assert found[0].alignment == "[up→right] down left [→now oh]"
    assert found[1].alignment == "yes [no→go]"
    assert [one.counts for one in found] == [ErrorCounts(2, 1, 0, 2), ErrorCounts(1, 1, 0, 0)]
    (missing,) = differences(["a b c d"], ["a d"], 1)
    assert missing.counts == ErrorCounts(hits=2, substitutions=0, deletions=2, insertions=0)
    assert missing.alignment == "a [b c→] d"
    assert differences(["a"], ["b"], 0) == []


def test_wrong_inputs():
    for said, heard, message in (([], [], "0 references"), (["a"], [], "1 references"), ([" "], ["a"], "0 is empty")):
        with pytest.raises(ConfigError, match=message):
            word_errors(said, heard)


def test_diagonality():
    assert diagonality([[1, 0, 0], [0, 1, 0], [0, 0, 1]]) == pytest.approx(1)
    assert diagonality([[0, 0, 1], [0, 1, 0], [1, 0, 0]]) == pytest.approx(-1)
    assert diagonality([[0, 1, 0]] * 3) == 0
    assert diagonality([[0.5, 0.5]]) == 1
    noisy = diagonality([[0.8, 0.1, 0.1], [0.0, 0.0, 0.0], [0.1, 0.7, 0.2], [0.4, 0.2, 0.4]])
    assert 0 < noisy < 1
