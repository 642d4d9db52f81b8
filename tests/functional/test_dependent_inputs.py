"""Gradients that can be differentiated again, where one input of a mechanism is computed from another.

A kernel's gradient of each input holds the others fixed. Were it taken through them, what connects the inputs would be
counted twice, and only with ``create_graph=True``.
"""

import pytest
import torch

import foci

B, L, S, D = 2, 3, 11, 6


def local(x):
    query, key = x[:, :L], torch.tanh(x.flip(2))
    attention = foci.Attention(D, D, score="general", focus="local_m", radius=2)
    return attention(query, key + query.sum(dim=1, keepdim=True)).output


def location_aware(x):
    attention = foci.Attention(D, D, 5, score="location_aware")
    memory, state, query, outputs = attention.prepare(x), None, x[:, :1], []
    for _ in range(L):
        read = attention.read(query, memory, state)
        query, state = query + read.output, read.state
        outputs.append(read.output)
    return torch.cat(outputs, dim=1)


def word_by_word(x):
    left = torch.tanh(x)
    matched = foci.build("word_by_word", model_dim=D)(left, torch.tanh(left + left.mean(dim=1, keepdim=True)))
    return matched.output


def neural_turing(x):
    memory = foci.build("ntm", input_dim=D, num_slots=7, slot_dim=3)
    state, outputs = None, []
    for step in x[:, :L].unbind(dim=1):
        output, state = memory(step + outputs[-1].mean() if outputs else step, state)
        outputs.append(output)
    return torch.stack(outputs, dim=1)


def crf(x):
    emissions = x[:, :, :4]
    transitions = torch.einsum("bti,btj->ij", emissions, emissions.cos()) / S
    mask = torch.ones(B, S, dtype=torch.bool)
    return foci.functional.crf.log_partition(emissions, transitions, transitions[0], transitions[1], mask)


@pytest.mark.parametrize("mechanism", [local, location_aware, word_by_word, neural_turing, crf])
def test_first_gradients_are_the_same_with_and_without_a_graph(mechanism):
    x = torch.randn(B, S, D, generator=torch.Generator().manual_seed(3)).requires_grad_()
    found = []
    for create_graph in (False, True):
        torch.manual_seed(5)  # the parameters
        output = mechanism(x)
        weights = torch.arange(output.numel()).cos().view_as(output)
        found.append(torch.autograd.grad((output * weights).sum(), x, create_graph=create_graph)[0].detach())
    torch.testing.assert_close(*found, atol=2e-6, rtol=2e-5)
    assert found[0].abs().max() > 1e-3
