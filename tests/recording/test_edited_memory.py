"""Edits of the memory of the Neural Turing Machine and of a CRF's marginals, against their equations by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import foci
from foci.errors import ConfigError, ShapeError
from foci.functional import addressing
from foci.functional.crf import log_partition
from foci.mechanisms.structured import constraints
from foci.recording import edit

B = 2

# --- the memory of the Neural Turing Machine

SLOTS = 7


def memory_and_steps(steps: int = 3) -> tuple[nn.Module, list[Tensor]]:
    module = foci.build(
        "ntm", input_dim=5, num_slots=SLOTS, slot_dim=3, num_read_heads=2, num_write_heads=2, initial_memory="learned"
    ).double()
    nn.init.normal_(module.commands.weight)
    return module, list(torch.randn(steps, B, 5, dtype=torch.float64))


def by_hand(module: Any, inputs: list[Tensor], writing: Any, reading: Any) -> tuple[list[Tensor], Any]:
    """The paper's equations, with weights that a function returns in the place of those of each step."""
    state, found = module.initial_state(B), []
    for step, given in enumerate(inputs):
        commands = module.commands(given)
        *_, write_weights, _ = addressing.step(commands, *state[:3], module.shift_width)
        write_weights = writing(step, write_weights)
        erase, add = commands[:, -4 * 3 :].view(B, 2, 2, 3).unbind(dim=2)
        memory = state.memory
        for head in range(2):
            memory = memory * (1 - write_weights[:, head, :, None] * torch.sigmoid(erase)[:, head, None])
        for head in range(2):
            memory = memory + write_weights[:, head, :, None] * torch.tanh(add)[:, head, None]
        read_weights, _ = addressing.read_step(commands, memory, state.read_weights, write_weights, module.shift_width)
        read_weights = reading(step, read_weights)
        reads = torch.einsum("bhn,bnm->bhm", read_weights, memory)
        state = type(state)(memory, read_weights, write_weights, reads)
        found.append(reads.flatten(1))
    return found, state


def run(module: Any, inputs: list[Tensor], change: Any, model: Any = None) -> tuple[list[Tensor], Any]:
    found, state = [], None
    with edit(module if model is None else model) as e:
        change(e)
        for given in inputs:
            output, state = module(given, state)
            found.append(output)
    return found, state


def same(step: int, weights: Tensor) -> Tensor:
    return weights


def first_head(new: Any) -> Any:
    return lambda step, weights: torch.where(torch.tensor([True, False])[:, None], new(weights), weights)


def without_slots(step: int, weights: Tensor) -> Tensor:
    left = weights.masked_fill(torch.arange(SLOTS) >= 5, 0.0)
    return left / left.sum(dim=-1, keepdim=True)


GIVEN = torch.rand(B, 2, SLOTS, dtype=torch.float64)
CHANGES: dict[str, tuple[Any, Any]] = {
    "knock_out": (lambda e, path: e.knock_out(path, 0), first_head(torch.zeros_like)),
    "block": (lambda e, path: e.block(path, keys=[5, 6]), without_slots),
    "uniform": (lambda e, path: e.uniform(path, 0), first_head(lambda weights: torch.full_like(weights, 1 / SLOTS))),
    "order": (lambda e, path: e.permute(path, order=[1, 2, 3, 4, 5, 6, 0]), lambda step, weights: weights.roll(-1, -1)),
    "weights": (lambda e, path: e.weights(path, GIVEN), lambda step, weights: GIVEN),
    "scale": (lambda e, path: e.scale(path, None, 0.5), lambda step, weights: weights / 2),
    "call": (
        lambda e, path: e.knock_out(path, call=1),
        lambda step, weights: torch.zeros_like(weights) if step == 1 else weights,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("part", ["read", "write"])
def test_a_memory_is_written_and_read_with_edited_weights(part, change):
    module, inputs = memory_and_steps()
    make_edit, new = CHANGES[change]
    got, state = run(module, inputs, lambda e: make_edit(e, f":{part}"))
    want, last = by_hand(module, inputs, *((same, new) if part == "read" else (new, same)))
    assert torch.allclose(torch.stack(got), torch.stack(want), atol=1e-12)
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(state, last))
    plain, _ = run(module, inputs, lambda e: None)
    assert not torch.allclose(torch.stack(plain), torch.stack(want), atol=1e-3)


def test_both_halves_of_a_step_are_edited_together():
    module, inputs = memory_and_steps()
    got, _ = run(module, inputs, lambda e: e.knock_out(".:*", 0))
    zero = first_head(torch.zeros_like)
    want, _ = by_hand(module, inputs, zero, zero)
    assert torch.allclose(torch.stack(got), torch.stack(want), atol=1e-12)


def test_a_slot_whose_content_is_zeroed_reads_nothing():
    module, inputs = memory_and_steps(1)
    _, state = module(inputs[0])
    with edit(module) as e:
        e.zero_values(":read", [2, 3])
        got, after = module(inputs[0])
    kept = state.memory.clone()
    kept[:, 2:4] = 0.0
    assert torch.allclose(got, (state.read_weights @ kept).flatten(1), atol=1e-15)
    assert torch.equal(after.memory, state.memory)
    with pytest.raises(ConfigError, match="zero_values of '.:write', which writes, expected weights that read"):
        run(module, inputs, lambda e: e.zero_values(":write", 0))


def test_paths_of_a_memory_that_are_not_there():
    module, inputs = memory_and_steps(1)
    model = nn.ModuleDict({"memory": module})
    for path in ("memory", "memory:left"):
        with pytest.raises(ConfigError, match="Edit memory:write, memory:read"):
            run(model["memory"], inputs, lambda e, path=path: e.knock_out(path), model)
    with pytest.raises(foci.errors.UnknownNameError):
        run(model["memory"], inputs, lambda e: e.knock_out("other:read"), model)


# --- a CRF

T, K = 4, 3


def chain() -> tuple[Any, Tensor, Tensor]:
    """A CRF of B, I and O, where I may not come first or after O."""
    crf = foci.build("crf", num_tags=K, **constraints(["O", "B", "I"])._asdict()).double()
    for parameter in crf.parameters():
        nn.init.normal_(parameter)
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1, 2] = False
    return crf, torch.randn(B, T, K, dtype=torch.float64), mask


def marginals(crf: Any, emissions: Tensor, mask: Tensor, closed: list[tuple[int, int]]) -> Tensor:
    """Every sequence of tags, one after the other, without those that have a closed tag at its step."""
    transitions, start, end = crf.scores()
    found = torch.zeros(B, T, K, dtype=torch.float64)
    for row in range(B):
        steps, total = [step for step in range(T) if mask[row, step]], 0.0
        for tags in itertools.product(range(K), repeat=len(steps)):
            if any(place in closed for place in zip(steps, tags)):
                continue
            score = start[tags[0]] + end[tags[-1]] + sum(emissions[row, t, k] for t, k in zip(steps, tags))
            score = score + sum(transitions[one, other] for one, other in itertools.pairwise(tags))
            total += float(score.detach().exp())
            for step, tag in zip(steps, tags):
                found[row, step, tag] += score.exp()
        found[row] /= total
    return found.detach()


def expected(crf: Any, emissions: Tensor, mask: Tensor, change: Any) -> foci.AttentionOutput:
    with edit(crf) as e:
        change(e)
        return crf(emissions, mask)


def test_a_blocked_tag_is_a_tag_that_is_forbidden_there():
    """A chain is no softmax of single steps: the other steps change too."""
    crf, emissions, mask = chain()
    with edit(crf) as e:
        e.block("", 1, 0)
        e.block("", 3, 1)
        got = crf(emissions, mask)
    want = marginals(crf, emissions, mask, [(1, 0), (3, 1)])
    assert torch.allclose(got.weights.dense(), want, atol=1e-12)
    assert torch.allclose(got.output, want.sum(dim=1), atol=1e-12)
    assert not torch.allclose(want[:, 0], marginals(crf, emissions, mask, [])[:, 0], atol=1e-3)


def test_a_step_without_a_tag_is_a_masked_step():
    crf, emissions, mask = chain()
    shorter = mask.clone()
    shorter[:, 1] = False
    got = expected(crf, emissions, mask, lambda e: e.block("", 1))
    assert torch.allclose(got.weights.dense(), crf(emissions, shorter).weights.dense(), atol=1e-12)
    assert log_partition(emissions, *crf.scores(), shorter).isfinite().all()


def test_uniform_marginals_are_of_the_tags_that_the_scheme_allows():
    crf, emissions, mask = chain()
    got = expected(crf, emissions, mask, lambda e: e.uniform(""))
    weights = got.weights.dense()
    assert torch.allclose(weights[0, 0], torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))  # I opens nothing
    assert torch.allclose(weights[0, 1:], torch.full((T - 1, K), 1 / 3, dtype=torch.float64))
    assert not weights[1, 2].any()
    assert torch.allclose(got.output, weights.sum(dim=1))
    with pytest.raises(ConfigError, match="weights are given to masked positions"):
        expected(crf, emissions, mask, lambda e: e.weights("", torch.full((K,), 1 / 3)))


def test_marginals_are_knocked_out_zeroed_and_given():
    crf, emissions, mask = chain()
    weights = crf(emissions, mask).weights.dense()
    got = expected(crf, emissions, mask, lambda e: e.zero_values("", 1))
    assert torch.equal(got.weights.dense(), weights)
    assert torch.equal(got.output, weights.sum(dim=1) * torch.tensor([1.0, 0.0, 1.0]))
    got = expected(crf, emissions, mask, lambda e: e.weights("", lambda weights: weights.square()))
    assert torch.equal(got.output, weights.square().sum(dim=1))
    with pytest.raises(ShapeError, match="Leave head out"):
        expected(crf, emissions, mask, lambda e: e.knock_out("", 0))
