"""Which pieces form a word: by labels, and by the spans of a text; against tokenizers of foci."""

import pytest

from foci.data.tokenizer import Tokenizer
from foci.viz.axis import Axis
from foci.viz.words import Word, words_of_labels, words_of_spans


def spelled(words):
    return [word.label for word in words]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["▁un", "believ", "able", "▁cat", "."], ["unbelievable", "cat", "."]),
        (["ĠThe", "Ġcat", "s"], ["The", "cats"]),
        (["un", "##believ", "##able", "cat"], ["unbelievable", "cat"]),
        (["the", "cat", "sat"], ["the", "cat", "sat"]),  # no marks at all: words already
        (["▁don", "'", "t", "▁(", "x", ")"], ["don't", "(", "x", ")"]),
        (["▁我", "们", "吃", "苹果", "。"], ["我", "们", "吃", "苹果", "。"]),
        (["⟨E7⟩", "⟨8C⟩", "⟨AB⟩", "⟨E7⟩⟨8C⟩", "⟨AB⟩"], ["猫", "猫"]),
        (["▁", "⟨E7⟩⟨8B⟩", "⟨97⟩", "▁a"], ["狗", "a"]),
        (["▁", "c", "a", "t", "▁", "o", "n"], ["cat", "on"]),
        (["▁caf", "e", "\u0301", "s"], ["cafe\u0301s"]),
        (["▁a", "⟨E7⟩", "▁b"], ["a", "�", "b"]),  # half a character
        (["▁caf", "⟨C3⟩", "⟨A9⟩", "s"], ["cafés"]),
        (["▁", "<s>"], ["<s>"]),
        (["##", "#", "▁"], ["##", "#", "▁"]),
        ([], []),
    ],
)
def test_words_of_labels(labels, words):
    found = words_of_labels(labels)
    assert spelled(found) == words
    assert sum(word.pieces for word in found) == len(labels)


def test_special_tokens_stand_alone():
    labels = ["<s>", "▁a", "b", "▁", "<s>", "c"]
    assert spelled(words_of_labels(labels, {0, 4})) == ["<s>", "ab", "▁", "<s>", "c"]


def test_words_of_spans():
    text = "I can't see  猫狗,\nnow"
    spans = [
        (0, 0),
        (0, 1),
        (1, 5),
        (5, 6),
        (6, 7),
        (7, 11),
        (11, 13),
        (13, 14),
        (13, 14),
        (14, 15),
        (15, 16),
        (16, 17),
    ]
    spans += [(17, 20)]
    words = words_of_spans(text, spans, [f"<{k}>" for k in range(len(spans))])
    assert spelled(words) == ["<0>", "I", "can't", "see", "猫", "狗", ",", "<11>", "now"]
    assert [word.pieces for word in words] == [1, 1, 3, 1, 3, 1, 1, 1, 1]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "bytes", "characters", "words"])
def test_words_of_own_tokenizers(kind):
    corpus = ["the lowest newest house", "the low new houses", "the lower newer house"] * 5
    tokenizer = Tokenizer.train(corpus, kind, 300)
    labels = tokenizer.labels(tokenizer.encode("the lowest new house").ids)
    words = spelled(Axis.from_tokens(labels).joined_words)
    assert words == ["the", "lowest", "new", "house"] or kind == "bytes"
    if kind in ("bpe", "unigram"):
        chinese = tokenizer.labels(tokenizer.encode("the 猫 house").ids)
        assert len(chinese) > 4
        assert spelled(Axis.from_tokens(chinese).joined_words) == ["the", "猫", "house"]


def test_a_document_has_its_words_sentence_by_sentence():
    axis = Axis.from_document([["▁the", "▁ca"], ["ts", "▁run"]])
    assert spelled(axis.joined_words) == ["the", "ca", "ts", "run"]


def test_positions_that_are_no_words_stay():
    axis = Axis.numbered("slots", 3)
    assert axis.joined_words == (Word("0", 1), Word("1", 1), Word("2", 1))
