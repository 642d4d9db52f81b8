"""The likelihood and the weights by every alignment, and what is learned from pairs that are word for word."""

from itertools import product

import pytest
import torch

from foci.models.word_aligner import WordAligner

SOURCE = torch.tensor([[5, 6, 5, 0], [7, 8, 9, 6]])
TARGET = torch.tensor([[3, 4, 0], [2, 3, 3]])


def random_aligner(*sizes):
    torch.manual_seed(len(sizes))
    aligner = WordAligner(*(sizes or (11, 7)), hidden_dim=5).double()
    for parameter in aligner.parameters():
        torch.nn.init.normal_(parameter)
    return aligner


@torch.no_grad()
def enumerated(aligner, source, target, words, reverse=None):
    """Return log p(y | x) and the weights, by every sequence of positions, each word from there or from nothing."""
    jumps, first = aligner.jumps.softmax(0), aligner.first.softmax(0)

    def word(one, read, y, among):
        """The probability of a word from another, or from nothing."""
        vector = one.nothing if read is None else one.embedding.weight[read]
        scores = {each: one.output.weight[each] @ vector + one.output.bias[each] for each in among}
        nothing = torch.sigmoid(one.unaligned)
        return scores[y].exp() / sum(map(torch.exp, scores.values())) * (nothing if read is None else 1 - nothing)

    total, weights = 0.0, torch.zeros(len(target), len(source), dtype=torch.double)
    for places in product(range(len(source)), repeat=len(target)):
        for nothing in product((False, True), repeat=len(target)):
            p = 1.0
            for t, (j, none) in enumerate(zip(places, nothing)):
                p = p * (first[j] if t == 0 else jumps[j - places[t - 1] + 40])
                p = p * word(aligner, None if none else source[j], target[t], words)
                if reverse is not None:
                    p = p * word(reverse, None if none else target[t], source[j], set(source))
            total = total + p
            for t, (j, none) in enumerate(zip(places, nothing)):
                weights[t, j] += 0.0 if none else float(p)
    return total.log(), weights / float(total)


def test_likelihood_and_weights_by_every_alignment():
    aligner = random_aligner()
    rows = [([5, 6, 5], [3, 4]), ([7, 8, 9, 6], [2, 3, 3])]
    found = aligner(SOURCE, SOURCE > 0, TARGET, TARGET > 0)
    weights = aligner.align(SOURCE, SOURCE > 0, TARGET, TARGET > 0).dense()
    for row, (source, target) in enumerate(rows):
        expected, _ = enumerated(aligner, source, target, words=(2, 3, 4))
        torch.testing.assert_close(found[row], expected)
        _, alone = enumerated(aligner, source, target, words=sorted(set(target)))
        torch.testing.assert_close(weights[row, : len(target), : len(source)], alone)
    assert weights[0, 2].eq(0).all()
    assert weights[0, :, 3].eq(0).all()


def test_weights_with_the_other_direction_by_every_alignment():
    aligner, reverse = random_aligner(), random_aligner(7, 11)
    weights = aligner.align(SOURCE, SOURCE > 0, TARGET, TARGET > 0, reverse).dense()
    for row, (source, target) in enumerate([([5, 6, 5], [3, 4]), ([7, 8, 9, 6], [2, 3, 3])]):
        _, expected = enumerated(aligner, source, target, sorted(set(target)), reverse)
        torch.testing.assert_close(weights[row, : len(target), : len(source)], expected)
    assert weights.isfinite().all()
    assert weights[0, 2].eq(0).all()


def test_gradients_are_finite_and_padding_has_none():
    aligner = random_aligner()
    aligner(SOURCE, SOURCE > 0, TARGET, TARGET > 0).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in aligner.parameters())
    assert aligner.embedding.weight.grad[0].eq(0).all()
    assert aligner.output.weight.grad[0].eq(0).all()
    assert aligner.embedding.weight.grad[5].ne(0).any()


def test_it_learns_which_word_is_which_in_any_order():
    """Targets are the sources' words, each by 10 higher, turned around."""
    torch.manual_seed(1)
    aligner = WordAligner(10, 20, hidden_dim=8)
    optimizer = torch.optim.Adam(aligner.parameters(), lr=0.03)
    for _ in range(120):
        source = torch.rand(16, 9).argsort(dim=1)[:, :4] + 1
        target = source.flip(1) + 10
        loss = -aligner(source, source > 0, target, target > 0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = aligner.align(source, source > 0, target, target > 0).dense()
    assert (weights.argmax(dim=-1) == torch.tensor([3, 2, 1, 0])).float().mean() > 0.95


@pytest.mark.parametrize("sizes", [(0, 7, 5), (11, 0, 5), (11, 7, 0)])
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError, match="WordAligner"):
        WordAligner(sizes[0], sizes[1], hidden_dim=sizes[2])
