"""Parts of examples: every example once, nothing about one thing in two parts, and nothing depends on the order."""

import pytest

from foci.data.splits import split, split_by_content
from foci.errors import ConfigError


def parts(contents, valid_share=0.1, test_share=0.1, seed=0):
    """The part of each text."""
    contents = list(contents)
    made = split_by_content(contents, str, valid_share=valid_share, test_share=test_share, seed=seed)
    found = {text: name for name, part in made._asdict().items() for text in part}
    assert sorted(contents) == sorted(text for part in made for text in part)
    return {text: found[text] for text in contents}


def test_a_part_depends_on_the_content_alone():
    whole = parts(f"text {number}" for number in range(300))
    assert {*whole.values()} == {"train", "valid", "test"}
    odd = parts(text for text in reversed(whole) if int(text[5:]) % 2)
    assert all(whole[text] == part for text, part in odd.items())
    assert parts(whole, seed=1) != whole
    made = parts(["a  b", *map(str, range(50)), " a b\n"], 0.3, 0.3)
    assert made["a  b"] == made[" a b\n"]


@pytest.mark.parametrize("count", range(2, 40))
def test_of_few_examples_one_is_held_out_and_later_ones_never_hold_out_trained_ones(count):
    before = parts(map(str, range(count)), 0.02, 0.02)
    found = [*before.values()]
    assert found.count("valid") >= 1
    assert found.count("train") >= 1
    assert found.count("test") >= (count > 2)
    after = parts(map(str, range(count + 1)), 0.02, 0.02)
    moved = [text for text, part in before.items() if part != after[text] and after[text] != "train"]
    assert not moved or count == 2  # of two nothing is held out to evaluate


def test_shares_of_zero_hold_nothing_out():
    assert {*parts(map(str, range(50)), 0.0, 0.0).values()} == {"train"}
    assert "valid" not in parts(map(str, range(50)), 0.0, 0.2).values()
    assert parts([]) == {}
    assert parts(["a"], 0.01, 0.01) == {"a": "train"}


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.5, 0.5)])
def test_shares_that_leave_nothing(shares):
    with pytest.raises(ConfigError, match="less than 1 with the other share"):
        parts("abc", *shares)


def test_entries_of_one_key_are_in_one_part():
    entries = [(f"key {number % 50}", number) for number in range(500)]
    made = split(entries, lambda one: one[0], valid_share=0.1, test_share=0.2)
    keys = [{key for key, _ in part} for part in made]
    assert [len(some) for some in keys] == [35, 5, 10]
    assert [len(part) for part in made] == [350, 50, 100]
    assert all(list(part) == sorted(part, key=lambda one: one[1]) for part in made)
