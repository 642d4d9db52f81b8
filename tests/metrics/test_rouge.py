"""ROUGE against Google's rouge-score on English, and by hand in scripts that it does not count."""

import random

import pytest
from rouge_score import rouge_scorer

from foci.errors import DataError
from foci.metrics.rouge import (
    KINDS,
    against_all,
    compared_words,
    longest_common,
    novel_share,
    oracle_extract,
    rouge,
)

WORDS = [
    "running",
    "cats",
    "Cat's",
    "the",
    "the",
    "re-start",
    "3.5%",
    "a_b",
    "houses",
    "relational",
    "of",
    "U.S.",
    "it",
]


def texts(count, seed):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 17))) for _ in range(count)]


@pytest.mark.parametrize("stem", [False, True])
def test_equals_rouge_score_on_english(stem):
    scorer = rouge_scorer.RougeScorer(list(KINDS), use_stemmer=stem)
    for produced, wanted in zip(texts(60, 1), texts(60, 2)):
        right = scorer.score(wanted, produced)
        found = rouge(compared_words(produced, stem=stem), compared_words(wanted, stem=stem))
        for kind in KINDS:
            assert found[kind].precision == pytest.approx(right[kind].precision, abs=1e-12)
            assert found[kind].recall == pytest.approx(right[kind].recall, abs=1e-12)
            assert found[kind].f == pytest.approx(right[kind].fmeasure, abs=1e-12)


def test_the_best_reference_is_chosen_by_rouge_1_and_the_mean_is_over_all():
    references = [compared_words(text) for text in ("the cat sat", "a cat sat down here", "dogs")]
    produced = compared_words("the cat sat down")
    found = against_all(produced, references)
    each = [rouge(produced, reference) for reference in references]
    assert found.best == each[0] == max(each, key=lambda one: one["rouge1"].f)
    for kind in KINDS:
        assert found.mean[kind].f == pytest.approx(sum(one[kind].f for one in each) / 3)
    other_order, fewer = compared_words("down sat cat the"), compared_words("the cat sat")
    found = against_all(produced, [fewer, other_order])  # the first is best by ROUGE-L
    assert found.best == rouge(produced, other_order)
    with pytest.raises(DataError, match="no references"):
        against_all(produced, [])


def test_scripts_without_spaces_count_by_characters():
    found = rouge(compared_words("猫坐在垫子上。"), compared_words("狗坐在垫子上"))
    assert found["rouge1"].f == pytest.approx(5 / 6)
    assert found["rouge2"].f == pytest.approx(4 / 5)
    assert found["rougeL"].f == pytest.approx(5 / 6)
    assert rouge_scorer.RougeScorer(["rouge1"]).score("狗坐在垫子上", "猫坐在垫子上")["rouge1"].fmeasure == 0
    assert compared_words("Élan Ωmega שלום नमस्ते") == ["élan", "ωmega", "שלום", "नमस्ते"]
    assert compared_words("今天3℃ OK") == ["今", "天", "3", "ok"]


def test_longest_common_subsequence_by_enumeration():
    chance = random.Random(3)

    def slow(one, other):
        if not one or not other:
            return 0
        if one[-1] == other[-1]:
            return 1 + slow(one[:-1], other[:-1])
        return max(slow(one[:-1], other), slow(one, other[:-1]))

    for _ in range(40):
        one, other = (chance.choices("abc", k=chance.randint(0, 7)) for _ in range(2))
        assert longest_common(one, other) == slow(one, other)


def test_empty_texts():
    for produced, wanted in (([], ["a"]), (["a"], []), ([], [])):
        assert all(value == 0 for one in rouge(produced, wanted).values() for value in one)
    assert novel_share([], ["a"], 1) is None
    assert novel_share(["a"], ["a"], 2) is None


def test_novel_ngrams_are_those_the_source_does_not_have():
    source = compared_words("the cat sat on the mat")
    assert novel_share(compared_words("the cat on the mat"), source, 2) == pytest.approx(1 / 4)
    assert novel_share(compared_words("the cat on the mat"), source, 1) == 0
    assert novel_share(compared_words("a dog dog"), source, 1) == 1


def test_the_oracle_takes_sentences_that_help_alone():
    sentences = [compared_words(text) for text in ("nothing here", "the cat sat", "on the mat", "other words entirely")]
    assert oracle_extract(sentences, [compared_words("the cat sat on the mat")], 3) == [1, 2]
    assert oracle_extract(sentences, [compared_words("the cat sat on the mat")], 1) in ([1], [2])
    assert oracle_extract(sentences, [compared_words("unrelated")], 2) == []
    assert oracle_extract([], [["a"]], 2) == []
