"""Links of words by aligners that are trained on the pairs themselves."""

import random

import pytest
import torch

from foci.data import Pair
from foci.errors import DataError
from foci.metrics.alignments import alignment_scores
from foci.metrics.attention import Links
from foci.tasks.translate import word_links
from foci.tasks.translate.word_links import own_links, read_links


def swapped_pairs(count):
    """Sentences whose translations have a word for each word, the first two swapped."""
    chance = random.Random(1)
    pairs, links = [], []
    for _ in range(count):
        chosen = chance.sample(range(12), chance.randint(2, 6))
        places = list(range(len(chosen)))
        places[:2] = places[1::-1]
        pairs.append(
            Pair(" ".join(f"w{chr(97 + i)}" for i in chosen), " ".join(f"v{chr(97 + chosen[i])}" for i in places))
        )
        links.append(Links(frozenset((place, number) for number, place in enumerate(places))))
    return pairs, links


def test_both_directions_find_which_word_is_which():
    pairs, links = swapped_pairs(300)
    logged, before = [], torch.get_rng_state()
    found = own_links(pairs, steps=120, longest=30, seed=0, log=logged.append)
    assert alignment_scores(found, links).aer < 0.05
    assert logged[0] == "aligning the words of 300 pairs by themselves: 120 steps in each direction"
    assert "of their links; those of both are taken" in logged[1]
    assert torch.equal(torch.get_rng_state(), before)
    assert found == own_links(pairs, steps=120, longest=30, seed=0, log=logged.append)


def test_long_and_empty_pairs_have_no_links_and_the_others_those_that_they_have_alone():
    pairs, _ = swapped_pairs(40)
    direction = word_links._trained(pairs, 20, seed=1)
    some = [pairs[0], Pair("", "va"), Pair(" ".join(["wa"] * 9), "va"), pairs[1]]
    found = read_links(direction, some, None, longest=8)
    assert [bool(one.all) for one in found[1:3]] == [False, False]
    assert found[0::3] == [read_links(direction, [pair], None)[0] for pair in pairs[:2]]
    assert len(read_links(direction, some, None)[2].all) <= 9


def test_pairs_that_are_all_too_long_are_refused():
    with pytest.raises(DataError, match=r"none of 3 pairs has at most 40 words on both sides"):
        own_links([Pair(" ".join(["a"] * 41), "b")] * 3, steps=10, longest=99, seed=0, log=print)
