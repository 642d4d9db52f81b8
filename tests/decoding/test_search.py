"""Greedy, beam and sampled search: against enumeration of every hypothesis, and against one another."""

import itertools
import math
from typing import Any

import pytest
import torch
from searches import beam, greedy, sample
from table_model import TableModel

from foci.decoding import GenerationConstraints, Hypothesis, Sampler, select
from foci.decoding.beam_search import top
from foci.decoding.sampling import penalize, truncate
from foci.errors import ConfigError, ShapeError

EOS = 2
SOURCE = torch.tensor([[3, 4, 5, 6], [4, 3, 3, 0], [5, 5, 0, 0]])
VALID = SOURCE > 0
EVERYTHING = 100_000


def log_prob_of(model: TableModel, source: torch.Tensor, tokens: list[int]) -> float:
    target = torch.tensor([[1, *tokens]])
    logs = model(source, source > 0, target).logits[0].log_softmax(-1)
    return sum(float(logs[t, token]) for t, token in enumerate(tokens))


def repeats(tokens: tuple[int, ...], size: int) -> bool:
    ngrams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


def enumerate_all(
    model: TableModel,
    row: int,
    vocabulary: int,
    steps: int,
    alpha: float,
    form: str,
    beta: float,
    constraints: GenerationConstraints,
) -> list[Hypothesis]:
    """Every finished hypothesis of at most this many steps, best first, by plain loops."""
    source = SOURCE[row : row + 1, : int(VALID[row].sum())]
    words = [w for w in range(vocabulary) if w != EOS and w not in constraints.banned]
    found = []
    for length in range(constraints.min_length, steps):
        for tokens in itertools.product(words, repeat=length):
            if constraints.no_repeat_ngram and repeats(tokens, constraints.no_repeat_ngram):
                continue
            if constraints.prefix is not None:
                forced = list(constraints.prefix[row])
                if list(tokens[: len(forced)]) != forced:
                    continue
            log_prob = log_prob_of(model, source, [*tokens, EOS])
            size = length + 1
            score = log_prob / (((5 + size) / 6) ** alpha if form == "gnmt" else size**alpha)
            if beta:
                read = model(source, source > 0, torch.tensor([[1, *tokens]])).attentions["decoder.cross"].dense()[0]
                score += beta * sum(math.log(min(sum(column), 1.0)) for column in read.T.tolist())
            found.append(Hypothesis(list(tokens), score, log_prob, True))
    return sorted(found, key=lambda h: -h.score)


CHOICES: list[tuple[float, str, float, dict[str, Any]]] = [
    (0.0, "gnmt", 0.0, {}),
    (0.9, "gnmt", 0.4, {}),
    (1.0, "average", 0.0, {"min_length": 2}),
    (0.7, "average", 0.3, {"no_repeat_ngram": 2}),
    (0.6, "gnmt", 0.0, {"no_repeat_ngram": 1, "min_length": 1}),
    (0.5, "gnmt", 0.2, {"prefix": [[3], [], [4, 4]]}),
]


@pytest.mark.parametrize(("alpha", "form", "beta", "more"), CHOICES)
def test_a_full_beam_is_enumeration(alpha: float, form: str, beta: float, more: dict[str, Any]) -> None:
    vocabulary, steps = 7, 4
    model = TableModel(vocabulary, seed=3)
    constraints = GenerationConstraints(max_length=steps, banned=(0, 1, 6), **more)
    penalties = {"length_penalty": alpha, "length_form": form, "coverage_penalty": beta}
    found = beam(model, SOURCE, VALID, size=EVERYTHING, n_best=9, constraints=constraints, **penalties)
    for row, ours in enumerate(found):
        expected = enumerate_all(model, row, vocabulary, steps, alpha, form, beta, constraints)[:9]
        assert [h.tokens for h in ours if h.finished] == [h.tokens for h in expected]
        for a, b in zip(ours, expected):
            assert a.score == pytest.approx(b.score, abs=1e-9)
            assert a.log_prob == pytest.approx(b.log_prob, abs=1e-9)


def beam_by_loops(
    model: TableModel, row: int, size: int, n_best: int, alpha: float, steps: int, beta: float = 0.0
) -> list[Hypothesis]:
    """The search of the docstring without batches, caches or an early stop."""
    source = SOURCE[row : row + 1, : int(VALID[row].sum())]
    opened, finished = [([], 0.0)], []
    for length in range(1, steps + 1):
        candidates = []
        for tokens, total in opened:
            logs = model(source, source > 0, torch.tensor([[1, *tokens]])).logits[0, -1].log_softmax(-1)
            candidates += [([*tokens, w], total + float(logs[w])) for w in range(2, logs.shape[0])]
        candidates.sort(key=lambda pair: -pair[1])
        for tokens, total in candidates[:size]:
            if tokens[-1] == EOS:
                score = total / ((5 + length) / 6) ** alpha + beta * unread(model, source, tokens[:-1])
                finished.append(Hypothesis(tokens[:-1], score, total, True))
        opened = [pair for pair in candidates if pair[0][-1] != EOS][:size]
    finished = sorted(finished, key=lambda h: -h.score)[:n_best]
    for tokens, total in opened[: n_best - len(finished)]:
        score = total / ((5 + steps) / 6) ** alpha + beta * unread(model, source, tokens[:-1])
        finished.append(Hypothesis(tokens, score, total, False))
    return finished


def unread(model: TableModel, source: torch.Tensor, before: list[int]) -> float:
    """The coverage penalty of all steps, the last of which reads after the tokens ``before``."""
    read = model(source, source > 0, torch.tensor([[1, *before]])).attentions["decoder.cross"].dense()[0]
    return sum(math.log(min(sum(column), 1.0)) for column in read.T.tolist())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("size", "n_best", "alpha"), [(1, 1, 0.0), (2, 2, 0.6), (3, 1, 1.2), (5, 5, 0.0), (2, 1, 3.0)])
def test_the_early_stop_changes_nothing(seed: int, size: int, n_best: int, alpha: float) -> None:
    model = TableModel(7, seed=seed)
    found = beam(
        model,
        SOURCE,
        VALID,
        size=size,
        n_best=n_best,
        length_penalty=alpha,
        constraints=GenerationConstraints(max_length=12),
    )
    for row, ours in enumerate(found):
        expected = beam_by_loops(model, row, size, n_best, alpha, 12)
        assert [(h.tokens, h.finished) for h in ours] == [(h.tokens, h.finished) for h in expected]
        assert [h.score for h in ours] == pytest.approx([h.score for h in expected])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beta", [0.3, 2.0])
def test_coverage_follows_its_hypothesis(seed: int, beta: float) -> None:
    """Hypotheses are reordered and sources dropped: the coverage of each must follow."""
    model = TableModel(7, seed=seed)
    options = {"size": 3, "n_best": 3, "length_penalty": 0.5, "coverage_penalty": beta}
    found = beam(model, SOURCE, VALID, constraints=GenerationConstraints(max_length=9), **options)
    for row, ours in enumerate(found):
        expected = beam_by_loops(model, row, 3, 3, 0.5, 9, beta)
        assert [(h.tokens, h.finished) for h in ours] == [(h.tokens, h.finished) for h in expected]
        assert [h.score for h in ours] == pytest.approx([h.score for h in expected])


def test_greedy_is_a_beam_of_one() -> None:
    for seed in range(5):
        model = TableModel(7, seed=seed)
        one = greedy(model, SOURCE, VALID)
        for found in (
            beam(model, SOURCE, VALID, size=1, length_penalty=0.0),
            beam(model, SOURCE, VALID, size=1, length_penalty=1.0, stop="full"),
        ):
            assert [h[0].tokens for h in one] == [h[0].tokens for h in found]
            assert [h[0].log_prob for h in one] == pytest.approx([h[0].log_prob for h in found])


def test_log_prob_is_the_models() -> None:
    model = TableModel(7)
    for row, (best,) in enumerate(greedy(model, SOURCE, VALID)):
        tokens = [*best.tokens, EOS] if best.finished else best.tokens
        assert best.log_prob == pytest.approx(log_prob_of(model, SOURCE[row : row + 1], tokens))


def test_a_batch_is_its_sentences_one_by_one() -> None:
    model = TableModel(7, seed=5)
    for search in (greedy, lambda *a: beam(*a, size=3, n_best=3, coverage_penalty=0.2)):
        together = search(model, SOURCE, VALID)
        for row in range(3):
            size = int(VALID[row].sum())
            (alone,) = search(model, SOURCE[row : row + 1, :size], VALID[row : row + 1, :size])
            assert [h.tokens for h in alone] == [h.tokens for h in together[row]]
            assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]])


def test_finished_sentences_are_dropped() -> None:
    model = TableModel(7, seed=1)
    found = greedy(model, SOURCE, VALID)
    lengths = [len(h[0].tokens) + h[0].finished for h in found]
    assert len(set(lengths)) > 1
    assert model.calls == [sum(length > t for length in lengths) for t in range(max(lengths))]


def test_default_length_is_twice_the_source_and_twenty() -> None:
    model = TableModel(7)
    model.table[..., EOS] = -50.0
    assert [len(h[0].tokens) for h in greedy(model, SOURCE, VALID)] == [28, 26, 24]
    found = beam(model, SOURCE, VALID, size=2, n_best=2)
    assert [[(len(h.tokens), h.finished) for h in row] for row in found] == [[(n, False)] * 2 for n in (28, 26, 24)]


def test_constraints_hold_for_every_search() -> None:
    model = TableModel(7, seed=2)
    constraints = GenerationConstraints(
        min_length=3, max_length=9, no_repeat_ngram=2, prefix=[[5, 5], [0], []], banned=(0, 1, 4)
    )
    generator = torch.Generator().manual_seed(0)
    searches = (
        greedy(model, SOURCE, VALID, constraints=constraints),
        beam(model, SOURCE, VALID, size=4, n_best=4, constraints=constraints),
        sample(model, SOURCE, VALID, samples=11, generator=generator, constraints=constraints),
    )
    for found in searches:
        for row, hypotheses in enumerate(found):
            for tokens, _, log_prob, _ in hypotheses:
                assert 3 <= len(tokens) <= 9
                assert tokens[: len(constraints.prefix[row])] == constraints.prefix[row]  # type: ignore[index]
                assert not {1, 4, EOS} & set(tokens[1:])
                assert not repeats(tuple(tokens), 2)
                assert math.isfinite(log_prob)


def test_a_hypothesis_nothing_may_follow_comes_back_unfinished() -> None:
    model = TableModel(5)
    constraints = GenerationConstraints(min_length=9, no_repeat_ngram=1)
    for found in (
        greedy(model, SOURCE[1:2], VALID[1:2], constraints=constraints),
        beam(model, SOURCE[1:2], VALID[1:2], constraints=constraints),
    ):
        ((best,),) = found
        assert sorted(best.tokens) == [3, 4]
        assert not best.finished
        assert math.isfinite(best.log_prob)


# Sampling


def test_samples_follow_the_distribution() -> None:
    model = TableModel(7, seed=4, scale=1.0)
    constraints = GenerationConstraints(max_length=1, banned=())
    (found,) = sample(
        model,
        SOURCE[:1],
        VALID[:1],
        sampler=Sampler(temperature=0.7),
        samples=20000,
        generator=torch.Generator().manual_seed(0),
        constraints=constraints,
    )
    logs = model(SOURCE[:1], VALID[:1], torch.tensor([[1]])).logits[0, 0].log_softmax(-1)
    expected = (logs / 0.7).softmax(-1)
    drawn = torch.tensor([h.tokens[0] if h.tokens else EOS for h in found]).bincount(minlength=7) / len(found)
    assert (drawn - expected).abs().max() < 0.01
    for h in found[:20]:
        assert h.log_prob == pytest.approx(float(logs[h.tokens[0] if h.tokens else EOS]))


@pytest.mark.parametrize("cut", [{"top_p": 0.6}, {"top_k": 3}, {"top_k": 4, "top_p": 0.7}])
@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_comes_before_the_cut(temperature: float, cut: dict[str, Any]) -> None:
    """Holtzman 2020: the nucleus is that of the distribution that is drawn from."""
    model, count = TableModel(7, seed=4), 20000
    constraints, generator = GenerationConstraints(max_length=1, banned=()), torch.Generator().manual_seed(1)
    (found,) = sample(
        model,
        SOURCE[:1],
        VALID[:1],
        sampler=Sampler(temperature=temperature, **cut),
        samples=count,
        generator=generator,
        constraints=constraints,
    )
    logs = model(SOURCE[:1], VALID[:1], torch.tensor([[1]])).logits[0, 0].log_softmax(-1)
    shares = (logs / temperature).softmax(-1).tolist()
    ranked = sorted(range(7), key=lambda w: -shares[w])[: cut.get("top_k", 7)]
    whole = sum(shares[w] for w in ranked)
    nucleus, mass = [], 0.0
    for w in ranked:
        if mass < cut.get("top_p", 1.0):
            nucleus.append(w)
        mass += shares[w] / whole
    drawn = torch.tensor([h.tokens[0] if h.tokens else EOS for h in found]).bincount(minlength=7)
    kept = sum(shares[w] for w in nucleus)
    for w in range(7):
        expected = shares[w] / kept if w in nucleus else 0.0
        assert abs(drawn[w].item() / count - expected) <= 5 * math.sqrt(expected * (1 - expected) / count)


def test_one_seed_gives_the_same_samples() -> None:
    model = TableModel(7)
    drawn = [
        sample(model, SOURCE, VALID, samples=3, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [len(row) for row in drawn[0]] == [3, 3, 3]


def test_the_likeliest_alone_is_greedy() -> None:
    model = TableModel(7)
    assert sample(model, SOURCE, VALID, sampler=Sampler(top_k=1)) == greedy(model, SOURCE, VALID)
    assert sample(model, SOURCE, VALID, sampler=Sampler(top_p=1e-6)) == greedy(model, SOURCE, VALID)


def test_truncation_by_loops() -> None:
    torch.manual_seed(0)
    logs = torch.randn(5, 11).log_softmax(-1)
    cut = truncate(logs, 6, 0.7)
    for row, kept in zip(logs.tolist(), cut.tolist()):
        ranked = sorted(range(11), key=lambda w: -row[w])[:6]
        whole = sum(math.exp(row[w]) for w in ranked)
        nucleus, mass = set(), 0.0
        for w in ranked:
            if mass < 0.7:
                nucleus.add(w)
            mass += math.exp(row[w]) / whole
        assert {w for w in range(11) if kept[w] > -math.inf} == nucleus


def test_min_p_by_loops() -> None:
    torch.manual_seed(1)
    logs = torch.randn(5, 11).log_softmax(-1)
    cut = truncate(logs, None, 1.0, 0.3)
    sizes = set()
    for row, kept in zip(logs.tolist(), cut.tolist()):
        expected = {w for w in range(11) if math.exp(row[w]) >= 0.3 * math.exp(max(row))}
        assert {w for w in range(11) if kept[w] > -math.inf} == expected
        sizes.add(len(expected))
    assert len(sizes) > 1


def test_repetition_penalty_by_loops() -> None:
    torch.manual_seed(2)
    logs = torch.randn(2, 7).log_softmax(-1)
    tokens = torch.tensor([[3, 3, 5], [0, 6, 1]])
    found = penalize(logs, tokens, 1.5)
    for row in range(2):
        for word in range(7):
            factor = 1.5 if word in tokens[row].tolist() else 1.0
            assert float(found[row, word]) == pytest.approx(factor * float(logs[row, word]))
    assert torch.equal(penalize(logs, tokens[:, :0], 1.5), logs)


def test_the_prompt_counts_as_repeated_for_its_own_source_only() -> None:
    logs = torch.tensor([[0.4, 0.35, 0.25]]).log().repeat(4, 1)  # two sources, two hypotheses each
    choose = Sampler(temperature=0.0, repetition_penalty=3.0).chooser(prompts=torch.tensor([[0], [2], [1]]))
    none = torch.zeros(4, 0, dtype=torch.long)
    assert choose(logs, none, [0, 2]).tolist() == [1, 1, 0, 0]
    assert choose(logs, torch.tensor([[1], [2], [0], [2]]), [0, 2]).tolist() == [2, 1, 2, 0]


# Parts


def test_select_over_a_tree() -> None:
    class Own:
        def select(self, index: torch.Tensor) -> str:
            return f"own {index.tolist()}"

    index = torch.tensor([1, 1, 0])
    tree = (torch.tensor([5, 7]), [{"a": torch.tensor([[1], [2]])}, None, 3], Own())
    numbers, rest, own = select(tree, index)
    assert numbers.tolist() == [7, 7, 5]
    assert rest[0]["a"].tolist() == [[2], [2], [1]]  # type: ignore[index]
    assert rest[1:] == [None, 3]
    assert own == "own [1, 1, 0]"


def test_top_by_blocks_is_topk() -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 5003)
    values, indices = top(scores, 7)
    expected = scores.topk(7, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


@pytest.mark.parametrize("size", [5003, 128 * 40, 128 * 40 + 1, 600])
def test_top_finds_the_best_wherever_they_stand(size: int) -> None:
    """Also in the tail that fills no block, at both ends, and all in one block."""
    places = [0, 1, 127, 128, size // 2, size - 2, size - 1]
    scores = torch.randn(2, size)
    scores[0, places] = torch.arange(100.0, 107.0)
    scores[1, size - 7 :] = torch.arange(200.0, 207.0)
    values, indices = top(scores, 7)
    expected = scores.topk(7, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


def test_no_source_gives_nothing() -> None:
    model = TableModel(7)
    for search in (greedy, beam, sample):
        assert search(model, SOURCE[:0], VALID[:0]) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 2, "n_best": 3}, "n_best is 3, expected at most size=2"),
        ({"size": 0}, "size is 0"),
        ({"length_penalty": -1.0}, "length_penalty is -1.0"),
        ({"length_form": "gmnt"}, "'gnmt'"),
        ({"stop": "exat"}, "'exact'"),
        ({"constraints": GenerationConstraints(prefix=[[3]])}, "1 prefixes for 3 sources"),
    ],
)
def test_wrong_options_of_beam(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        beam(TableModel(7), SOURCE, VALID, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_length": 0}, "max_length is 0"),
        ({"min_length": -1}, "min_length is -1"),
        ({"banned": (2,)}, "EOS is 2 and banned"),
        ({"prefix": [[5, 2]]}, "a prefix holds EOS, token 2"),
    ],
)
def test_wrong_constraints(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        GenerationConstraints(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_k": 0}, "top_k is 0"),
        ({"min_p": 2.0}, "min_p is 2.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
    ],
)
def test_wrong_options_of_a_sampler(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Sampler(**options)


def test_wrong_valid() -> None:
    with pytest.raises(ShapeError, match=r"source_valid has shape \(3, 3\), expected \(batch, position\) = \(3, 4\)"):
        greedy(TableModel(7), SOURCE, VALID[:, :3])
