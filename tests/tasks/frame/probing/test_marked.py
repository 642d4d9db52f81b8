"""Where tokens stand in their text, and which of them people marked."""

import pytest

from foci.errors import ConfigError
from foci.tasks.frame.probing.marked import marked_tokens, places_of_tokens


def test_tokens_are_found_in_order():
    assert places_of_tokens("a b a", ["a", "b", "a"]) == [(0, 1), (2, 3), (4, 5)]
    assert places_of_tokens("Das HAUS", ["das", "haus"]) == [(0, 3), (4, 8)]


def test_a_token_that_is_not_there_is_empty_and_the_others_are_found():
    assert places_of_tokens("one two", ["one", "<unk>", "two"]) == [(0, 3), (3, 3), (4, 7)]


def test_marks_of_spaces_are_no_letters():
    assert places_of_tokens("the house", ["<bos>", "▁the", "▁", "▁hou", "se"]) == [
        (0, 0),
        (0, 3),
        (3, 3),
        (4, 7),
        (7, 9),
    ]


def test_a_part_of_a_token_marks_it():
    given = {"text": "one two three", "rationales": [[5, 6]]}
    assert marked_tokens(given, "document", ["one", "two", "three"]) == {1}
    assert marked_tokens({"text": "one"}, "document", ["one"]) is None


def test_spans_may_be_of_each_text():
    given = {"premise": "a b", "hypothesis": "c d", "rationales": {"hypothesis": [[2, 3]]}}
    assert marked_tokens(given, "hypothesis", ["c", "d"]) == {1}
    assert marked_tokens(given, "premise", ["a", "b"]) is None


def test_spans_without_a_text_are_refused():
    with pytest.raises(ConfigError, match="there is no such text"):
        marked_tokens({"rationales": [[0, 1]]}, "document", ["a"])
