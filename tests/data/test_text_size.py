"""The size of texts as far as their tokens are scored."""

import math

import pytest

from foci.data.text_size import text_size
from foci.data.tokenizer import Tokenizer

pytest.importorskip("tokenizers")


def test_cut_texts_count_as_far_as_they_are_scored():
    words = Tokenizer.train([" ab cd é"], kind="words", size=20)
    texts = [" ab xy é", " ab cd", ""]
    whole = [words.encode(text).ids for text in texts]
    size = text_size(words, texts, whole)
    assert (size.characters, size.bytes, size.unknown) == (14, 15, 1)
    assert size.spelling == pytest.approx(4 * math.log(8) + 2 * math.log(0x110000))  # blank, x, y, end; x, y unseen
    cut = text_size(words, texts, [whole[0][:1], whole[1][:1], []])
    assert (cut.characters, cut.unknown, cut.spelling) == (6, 0, 0.0)


def test_words_that_can_be_copied_are_not_spelled():
    words = Tokenizer.train([" ab cd"], kind="words", size=20)
    assert text_size(words, [" ab xy"], [[words.encode(" ab").ids[0], len(words)]]).unknown == 0


def test_bytes_spell_every_text():
    pieces = Tokenizer.train(["low lower lowest"], kind="bpe", size=280)
    text = "新 low"
    assert text_size(pieces, [text], [pieces.encode(text).ids]) == (7, 5, 0, 0)
