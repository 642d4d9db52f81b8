"""The answers without each head: those of a model whose head is zeroed, and kept with a trace."""

import copy

import pytest
import torch
from torch import nn

import foci
from foci.errors import ConfigError
from foci.viz.heads.answers import Answer, answers_of, answers_without_heads, own_answer, with_answers
from foci.viz.trace import Trace


def test_they_are_those_of_models_with_a_zeroed_head():
    model = nn.MultiheadAttention(6, 3, batch_first=True).eval()
    x = torch.randn(1, 5, 6)

    def answer(one=model):
        return Answer("x", float(one(x, x, x)[0].detach().sum()))

    found = answers_without_heads(model, answer)
    assert list(found) == [".:0", ".:1", ".:2"]
    for head, got in enumerate(found.values()):
        twin = copy.deepcopy(model)
        with torch.no_grad():
            twin.out_proj.weight[:, 2 * head : 2 * head + 2] = 0.0
        assert got.score == pytest.approx(answer(twin).score, abs=1e-5)


def test_what_is_only_recorded_is_an_error():
    class Own(nn.Module):
        def forward(self, x):
            return foci.AttentionOutput(x * x.sigmoid(), foci.Weights.from_tensor(x.sigmoid()))

    gate = Own()
    with pytest.raises(ConfigError, match="only recorded"):
        answers_without_heads(gate, lambda: Answer(str(gate(torch.randn(1, 7, 2, 2)).output.shape)))


def test_the_parts_of_a_memory_are_answered_without_too():
    memory, given = foci.build("ntm", input_dim=5, num_slots=7, slot_dim=3), torch.randn(1, 5)
    found = answers_without_heads(memory, lambda: Answer("x", float(memory(given)[0].detach().abs().sum())))
    assert list(found) == [".:read", ".:write"]
    assert found[".:read"].score == 0.0
    assert found[".:write"].score > 0.0


def test_they_are_kept_in_order_of_what_they_change(tmp_path):
    trace = Trace.from_arrays([[1.0]], ["das"], ["the"])
    assert answers_of(trace) == []
    answers = {"a:0": Answer("the", 0.5), "a:1": Answer("the", 0.1), "b": Answer("a", 0.6)}
    kept = with_answers(trace, Answer("the", 0.6), answers)
    loaded = Trace.load(kept.save(tmp_path / "kept"))
    want = [("b", answers["b"], True), ("a:1", answers["a:1"], False), ("a:0", answers["a:0"], False)]
    assert answers_of(loaded) == want
    assert own_answer(loaded) == Answer("the", 0.6)
