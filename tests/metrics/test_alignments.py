"""Joining two directions by hand and by matrices, and scores and gold files by hand."""

from itertools import product

import numpy as np
import pytest

from foci.errors import ConfigError, DataError, UnknownNameError
from foci.metrics import alignments
from foci.metrics.attention import Links, format_pharaoh, parse_pharaoh

METHODS = ("intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")


def matrix(links, shape):
    found = np.zeros(shape, bool)
    for source, target in links.all:
        found[source, target] = True
    return found


def by_matrices(forward, backward, method):
    """Koehn's program on matrices (source, target): every cell is visited, target by target, until nothing changes."""
    union = forward | backward
    found = union.copy() if method == "union" else forward & backward
    sources, targets = found.shape

    def grows(s, t, both):
        bare = (not found[s].any(), not found[:, t].any())
        return not found[s, t] and (all(bare) if both else any(bare))

    if method.startswith("grow"):
        changed = True
        while changed:
            changed = False
            for t, s in product(range(targets), range(sources)):
                if not found[s, t]:
                    continue
                for down, right in ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)):
                    i, j = s + down, t + right
                    if 0 <= i < sources and 0 <= j < targets and union[i, j] and grows(i, j, both=False):
                        found[i, j] = changed = True
    if "final" in method:
        for one in (forward, backward):
            for t, s in product(range(targets), range(sources)):
                if one[s, t] and grows(s, t, both=method.endswith("and")):
                    found[s, t] = True
    return found


@pytest.mark.parametrize("method", METHODS)
def test_joined_as_by_matrices(method):
    generator = np.random.default_rng(3)
    shape = (7, 5)
    for share in (0.05, 0.15, 0.3):
        for _ in range(60):
            forward, backward = (generator.random(shape) < share for _ in range(2))
            ours = alignments.symmetrize(
                *(Links(frozenset(zip(*(side.tolist() for side in np.nonzero(one))))) for one in (forward, backward)),
                method,
            )
            np.testing.assert_array_equal(matrix(ours, shape), by_matrices(forward, backward, method))


def test_joined_by_hand():
    """The far link 4-0 has no neighbor: -final adds it (4 has none), -final-and does not (0 has one)."""
    (forward,), (backward,) = parse_pharaoh("0-0 1-1 1-2 4-0"), parse_pharaoh("0-0 1-1 2-1 6-6")
    joined = {method: format_pharaoh([alignments.symmetrize(forward, backward, method)]) for method in METHODS}
    assert joined == {
        "intersection": "0-0 1-1",
        "union": "0-0 1-1 1-2 2-1 4-0 6-6",
        "grow-diag": "0-0 1-1 1-2 2-1",
        "grow-diag-final": "0-0 1-1 1-2 2-1 4-0 6-6",
        "grow-diag-final-and": "0-0 1-1 1-2 2-1 6-6",
    }


def test_a_link_that_was_just_added_counts_at_once():
    """From 0-0 the union grows along the diagonal to its end; of two links of one word beside it only the first."""
    (forward,), (backward,) = parse_pharaoh("0-0 1-1 2-2 3-3"), parse_pharaoh("0-0")
    assert alignments.symmetrize(forward, backward, "grow-diag") == forward
    (forward,) = parse_pharaoh("0-0 1-1 1-0")
    assert format_pharaoh([alignments.symmetrize(forward, backward, "grow-diag")]) == "0-0 1-0 1-1"


def test_possible_links_count_as_links_and_an_unknown_method_is_named():
    (forward,), (backward,) = parse_pharaoh("0p0 1-1"), parse_pharaoh("0-0")
    assert format_pharaoh([alignments.symmetrize(forward, backward, "intersection")]) == "0-0"
    with pytest.raises(UnknownNameError, match="grow-diag-final"):
        alignments.symmetrize(forward, backward, "grow-final")


def test_scores_by_hand():
    """A = 4, S = 3, A ∩ S = 2, A ∩ P = 3: AER 1 − 5/7, precision 3/4, recall 2/3."""
    gold, predicted = parse_pharaoh("0-0 1-1 2-2 2p3"), parse_pharaoh("0-0 1-1 2-3 3-3")
    scores = alignments.alignment_scores(predicted, gold)
    assert scores == (pytest.approx(1 - 5 / 7), 3 / 4, 2 / 3, 4, 3)
    empty = [Links(frozenset())]
    assert alignments.alignment_scores(empty, gold) == (1.0, 1.0, 0.0, 0, 3)
    assert alignments.alignment_scores(empty, empty) == (0.0, 1.0, 1.0, 0, 0)


def test_agreement_and_transposed():
    (one,) = parse_pharaoh("0-1 2p3")
    assert alignments.transposed(one) == parse_pharaoh("1-0 3p2")[0]
    assert alignments.agreement([one, one], [one, Links(frozenset())]) == 2 * 2 / 6
    assert alignments.agreement([Links(frozenset())], [Links(frozenset())]) == 0.0


def test_gold_in_both_forms():
    sizes = [(2, 3), (1, 1), (3, 3)]
    by_link = alignments.parse_gold(["0001 1 1 S", "0001 2 3 P", "3 3 1", ""], sizes, "gold")
    by_sentence = alignments.parse_gold(["0-0 1?2", "", "2-0"], sizes, "gold")
    assert by_link == by_sentence == alignments.parse_gold(["1-1 2p3", "", "3-1"], sizes, "gold", first=1)
    assert by_link[0] == Links(frozenset({(0, 0)}), frozenset({(1, 2)}))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0", "0-0"], r"gold, line 2: 2 lines, but 1 sentence pairs"),
        (["0-2"], r"gold, line 1: word 2 of the target, expected one of its 2 words of sentence 1"),
        (["0-0 x"], r"gold, line 1: has 'x'"),
        (["1 1 1 S", "1 3 1 S"], r"gold, line 2: word 3 of the source"),
        (["1 1 1 S", "2 1 1 S"], r"gold, line 2: sentence 2, but there are 1"),
        (["1 1 1 S", "1 1 S"], r"gold, line 2: is '1 1 S', expected sentence source target"),
        (["1 1 1 Q"], r"gold, line 1: is '1 1 1 Q'"),
        (["1 0 1 S"], r"gold, line 1: word 0 of the source"),
    ],
)
def test_a_mistake_in_a_gold_file_names_its_line(lines, message):
    with pytest.raises(DataError, match=message):
        alignments.parse_gold(lines, [(2, 2)], "gold")


def test_the_number_of_the_first_word_belongs_to_pharaohs_form():
    with pytest.raises(ConfigError, match="Leave it out"):
        alignments.parse_gold(["1 1 1 S"], [(1, 1)], "gold", first=1)
    with pytest.raises(DataError, match="counted from 1"):
        alignments.parse_gold(["0-0"], [(1, 1)], "gold", first=1)
