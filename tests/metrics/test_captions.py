"""BLEU, CIDEr-D and ROUGE-L of captions against sacrebleu, and against their formulas in plain loops.

The loops, and so these metrics, were compared once with pycocoevalcap 1.2 on Flickr8k's validation captions, in English
and Chinese: equal to 11 digits. The package is 104 MB of Java archives, and so no dependency.
"""

import math
import random

import pytest
from sacrebleu.metrics import BLEU

from foci.errors import DataError
from foci.metrics.attention import movement
from foci.metrics.captions import bleu_by_size, caption_scores, cider_d, rouge_l
from foci.metrics.rouge import compared_words

WORDS = ["a", "the", "dog", "Dog", "runs", "on", "green", "grass", ".", "一", "只", "狗"]


def captions(seed, images=23):
    chance = random.Random(seed)

    def text():
        return " ".join(chance.choices(WORDS, k=chance.randint(1, 13)))

    return [text() for _ in range(images)], [[text() for _ in range(chance.randint(1, 5))] for _ in range(images)]


@pytest.mark.parametrize("seed", [3, 5])
def test_bleu_is_that_of_sacrebleu_on_the_same_words(seed):
    produced, references = captions(seed)
    most = max(map(len, references))
    joined = [" ".join(compared_words(text)) for text in produced]
    streams = [
        [" ".join(compared_words(some[place])) if place < len(some) else None for some in references]
        for place in range(most)
    ]
    found = caption_scores(produced, references)
    for size in (1, 2, 3, 4):
        metric = BLEU(tokenize="none", force=True, max_ngram_order=size, smooth_method="none")
        expected = metric.corpus_score(joined, streams)
        assert found[f"bleu{size}"] == pytest.approx(expected.score)
        assert found[f"bleu{size}_no_penalty"] == pytest.approx(expected.score / expected.bp)
        assert found["length_ratio"] == pytest.approx(expected.sys_len / expected.ref_len)


def test_brevity_penalty_counts_the_nearest_reference_and_of_two_the_shorter():
    found = bleu_by_size([["a", "b", "c"]], [[["a", "b"], ["a", "b", "c", "d"], ["a"] * 9]])
    assert found["length_ratio"] == 3 / 2
    assert found["bleu1"] == found["bleu1_no_penalty"] == pytest.approx(100)
    short = bleu_by_size([["a", "b"]], [[["a", "b", "c", "d"]]])
    assert short["bleu2"] == pytest.approx(100 * math.exp(-1))
    assert short["bleu2_no_penalty"] == pytest.approx(100)
    assert short["bleu3"] == short["bleu4"] == 0


def plain_cider(produced, references):
    """Vedantam et al. 2015, section 6, in loops over every n-gram of either text."""
    scores = []
    for candidate, some in zip(produced, references):
        total = 0.0
        for reference in some:
            for size in (1, 2, 3, 4):

                def grams(words, size=size):
                    return [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]

                def weight(gram, words, grams=grams):
                    images = sum(any(gram in grams(other) for other in others) for others in references)
                    return grams(words).count(gram) * math.log(len(references) / max(images, 1))

                dot = sum(
                    min(weight(gram, candidate), weight(gram, reference)) * weight(gram, reference)
                    for gram in set(grams(candidate))
                )
                norm = math.prod(
                    math.sqrt(sum(weight(gram, words) ** 2 for gram in set(grams(words))))
                    for words in (candidate, reference)
                )
                apart = len(candidate) - len(reference)
                total += math.exp(-(apart**2) / 72) * (dot / norm if norm else 0.0) / 4
        scores.append(10 * total / len(some))
    return scores


def test_cider_is_the_formula_of_the_paper():
    produced, references = captions(7, images=11)
    words, wanted = (
        [compared_words(text) for text in produced],
        [[compared_words(text) for text in some] for some in references],
    )
    assert cider_d(words, wanted) == pytest.approx(plain_cider(words, wanted))
    assert max(cider_d(words, wanted)) > 0.5
    assert cider_d(words[:1], wanted[:1]) == [0.0]  # of one image alone no n-gram is rare
    unique = [[[f"{image}{place}" for place in range(5)]] for image in range(3)]
    assert cider_d([some[0] for some in unique], unique) == pytest.approx([10.0] * 3)


def test_rouge_takes_the_best_precision_and_the_best_recall_of_different_references():
    produced, references = list("abcd"), [list("abcdxxxx"), list("cd")]
    precision, recall = 4 / 4, 2 / 2  # of the first and of the second
    assert rouge_l(produced, references) == pytest.approx(2.44 * precision * recall / (recall + 1.44 * precision))
    assert rouge_l(produced, references[:1]) == pytest.approx(2.44 * 0.5 / (0.5 + 1.44))
    assert rouge_l(produced, references[:1], beta=1.0) == pytest.approx(2 * 0.5 / 1.5)
    assert rouge_l([], references) == rouge_l(list("y"), references) == 0


def test_any_script_and_wrong_numbers():
    found = caption_scores(["一只狗在草地上跑。", "كلب يجري"], [["一只狗在草地上奔跑"], ["كلب يجري", "قط"]])
    assert 60 < found["bleu4"] < found["bleu1"] < 100
    assert found["cider_d"] > 500
    assert caption_scores([""], [["a dog"]])["bleu1"] == 0
    for produced, references in (([], []), (["a"], []), (["a"], [[]])):
        with pytest.raises(DataError, match=f"{len(produced)} captions and {len(references)} lists"):
            caption_scores(produced, references)


def test_movement_is_nothing_for_equal_maps_and_whole_for_disjoint_ones():
    assert movement([[0.25, 0.75]] * 5) == (0.0, 0.0)
    assert movement([[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]) == (1.0, 1.0)
    assert movement([[0.5, 0.3, 0.2], [0.5, 0.2, 0.3], [0.2, 0.5, 0.3]]) == pytest.approx((0.2, 0.5))
