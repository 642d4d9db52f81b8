"""Sampling: against the distribution, and its parts by plain loops."""

import math
from typing import Any

import pytest
import torch
from searches import EOS, SOURCE, VALID, greedy, sample
from table_model import TableModel

from foci.decoding import GenerationConstraints, Sampler
from foci.decoding.sampling import penalize, truncate
from foci.errors import ConfigError


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
