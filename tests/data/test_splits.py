"""Parts of examples: every example once, nothing about one thing in two parts, and nothing depends on the order."""

import pytest

from foci.data.splits import file_key, pair_key, split, text_key
from foci.errors import ConfigError


def parts(contents, valid_share=0.1, test_share=0.1, seed=0):
    """The part of each text."""
    contents = list(contents)
    made = split(contents, text_key, valid_share=valid_share, test_share=test_share, seed=seed)
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
    assert found.count("test") >= (found.count("train") > 1)
    after = parts(map(str, range(count + 1)), 0.02, 0.02)
    moved = [text for text, part in before.items() if part != after[text] and after[text] != "train"]
    # Of few examples there may have been none to hold out for evaluation, since one has to be trained on.
    assert not moved or "test" not in found


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
    assert sum(map(len, keys)) == 50
    assert all(len(part) == 10 * len(some) > 0 for part, some in zip(made, keys))
    assert all(list(part) == sorted(part, key=lambda one: one[1]) for part in made)


def test_keys_of_near_duplicates_are_equal():
    assert text_key("The cat sat.") == text_key("the  CAT\tsat!") != text_key("the cats at", "")
    assert text_key("é") == text_key("e\u0301")
    assert text_key("你好，世界") == text_key("你好 世界。")
    assert pair_key("A man.", "a dog") == pair_key("A dog", "a man") != pair_key("a dog", "a dog")


def test_the_key_of_a_file_is_its_content(tmp_path):
    (tmp_path / "a").mkdir()
    first, second = tmp_path / "x.png", tmp_path / "a" / "y.png"
    first.write_bytes(b"pixels")
    second.write_bytes(b"pixels")
    assert file_key(str(first)) == file_key(str(second))
    second.write_bytes(b"others")
    assert file_key(str(first)) != file_key(str(second))
    assert file_key(str(tmp_path / "none.png")) == "none.png"
    assert file_key("drawn:several/test/0/0") == "drawn:several/test/0/0"
