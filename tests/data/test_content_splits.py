"""Parts by content: thresholds on digests, whatever else is in the file."""

import pytest

from foci.data.content_splits import parts_by_content
from foci.errors import ConfigError


def split(contents, valid_share=0.1, test_share=0.1, seed=0):
    contents = list(contents)
    made = parts_by_content(contents, valid_share=valid_share, test_share=test_share, seed=seed)
    return dict(zip(contents, made, strict=True))


def test_a_part_depends_on_the_content_alone():
    whole = split(f"text {number}" for number in range(300))
    assert {*whole.values()} == {"train", "valid", "test"}
    odd = split(text for text in reversed(whole) if int(text[5:]) % 2)
    assert all(whole[text] == part for text, part in odd.items())
    assert split(whole, seed=1) != whole
    made = parts_by_content(["a  b", *map(str, range(50)), " a b\n"], valid_share=0.3, test_share=0.3)
    assert made[0] == made[-1]


@pytest.mark.parametrize("count", range(2, 40))
def test_of_few_examples_one_is_held_out_and_later_ones_never_hold_out_trained_ones(count):
    before = split(map(str, range(count)), 0.02, 0.02)
    parts = [*before.values()]
    assert parts.count("valid") >= 1
    assert parts.count("train") >= 1
    assert parts.count("test") >= (count > 2)
    after = split(map(str, range(count + 1)), 0.02, 0.02)
    moved = [text for text, part in before.items() if part != after[text] and after[text] != "train"]
    assert not moved or count == 2  # of two nothing is held out to evaluate


def test_shares_of_zero_hold_nothing_out():
    assert {*split(map(str, range(50)), 0.0, 0.0).values()} == {"train"}
    assert "valid" not in split(map(str, range(50)), 0.0, 0.2).values()
    assert parts_by_content([], valid_share=0.1, test_share=0.1) == []
    assert parts_by_content(["a"], valid_share=0.01, test_share=0.01) == ["train"]


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.5, 0.5)])
def test_shares_that_leave_nothing(shares):
    with pytest.raises(ConfigError, match="together less than 1"):
        split("abc", *shares)
