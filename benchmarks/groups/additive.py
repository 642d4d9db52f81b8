"""Additive attention

`vᵀ tanh(query + key)` for every pair of query and key, sizes (batch, queries, keys, hidden). The broadcast form, one
tensor with a number for each query, key and hidden unit, is what Keras, OpenNMT-py, eole, AllenNLP and d2l compute.
A step is one query of a decoder that has prepared its source: no key is projected again. The short ones are so small
that calls of Python take much of their time: the goal is at most 1.3 times the operations of torch by hand. About half
of the broadcast form's time is the system's, which clears fresh pages for its large tensors at each call; with an
allocator that keeps them (`MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184`) the ratios are about half as large.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

import foci
from benchmarks.harness import FORWARD, TRAIN, Call, Case, Side, call, leaf
from benchmarks.peers import stand_in_for_torchaudio
from foci.functional import scores
from foci.mechanisms.scores import Additive

LARGE = ((64, 50, 50, 512), (8, 512, 512, 256))
SMALL = (16, 50, 50, 512)
STEP = (64, 1, 50, 512)
SHORT_STEP = (1, 1, 20, 64)

Shape = tuple[int, int, int, int]


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against one peer."""
    whole = {"torch": _broadcast, "keras": _keras_layer, "eole": _eole_scores}
    steps = {
        "torch": ("a prepared step in plain torch", _plain_step),
        "keras": ("AdditiveAttention", _keras_step),
        "speechbrain": ("ContentBasedAttention", _speechbrain_step),
        "espnet": ("AttAdd", _espnet_step),
    }
    if peer in whole:
        for shape in (SMALL,) if quick else LARGE:
            for measure in (FORWARD, TRAIN):
                yield whole[peer](measure, shape)
    if peer in steps:
        yield _step(*steps[peer])
    if peer == "torch":
        for measure in (FORWARD, TRAIN):
            yield _short_step(measure, "a prepared step in plain torch", prepared=True)
            yield _short_step(measure, "plain torch", prepared=False)


# The scores alone


def broadcast(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Compute the scores with one tensor (batch, queries, keys, hidden) of all sums."""
    return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ vector


def _projected(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    batch, queries, keys, hidden = shape
    return leaf(batch, queries, hidden), leaf(batch, keys, hidden), leaf(hidden, scale=hidden**-0.5)


def _broadcast(measure: str, shape: Shape) -> Case:
    def ours(*inputs: Tensor) -> Call:
        return call(measure, lambda: scores.additive(*inputs), inputs)

    def theirs(*inputs: Tensor) -> Call:
        return call(measure, lambda: broadcast(*inputs), inputs)

    return Case(
        name=f"scores {shape}",
        against="broadcast form",
        measure=measure,
        inputs=partial(_projected, shape),
        ours=ours,
        theirs=theirs,
        goal=None if shape == SMALL else 50.0 if measure == FORWARD else 40.0,
        memory_goal=40.0,
        work=("cell", prod(shape)) if measure == FORWARD else None,
    )


# Projections and scores


def _eole_scores(measure: str, shape: Shape) -> Case:
    batch, queries, keys, hidden = shape

    def inputs() -> tuple[Additive, Tensor, Tensor]:
        return Additive(hidden, hidden, bias=True), leaf(batch, queries, hidden), leaf(batch, keys, hidden)

    def ours(score: Additive, query: Tensor, key: Tensor) -> Call:
        return call(measure, lambda: score(query, key), (query, key), list(score.parameters()))

    def theirs(score: Additive, query: Tensor, key: Tensor) -> Call:
        from eole.modules.global_attention import GlobalAttention

        peer = GlobalAttention(hidden, attn_type="mlp")
        with torch.no_grad():
            peer.linear_query.weight.copy_(score.query_layer.weight)
            peer.linear_query.bias.copy_(score.key_layer.bias)  # the one bias inside the tanh
            peer.linear_context.weight.copy_(score.key_layer.weight)
            peer.v.weight.copy_(score.vector.unsqueeze(0))
        parameters = [*peer.linear_query.parameters(), *peer.linear_context.parameters(), *peer.v.parameters()]
        return call(measure, lambda: peer.score(query, key), (query, key), parameters)

    return Case(
        name=f"projections and scores {shape}",
        against="GlobalAttention.score",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
    )


# The whole attention. The layer of Keras does not project.


def _keras_layer(measure: str, shape: Shape) -> Case:
    batch, _, keys, hidden = shape

    def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return *_projected(shape), leaf(batch, keys, hidden)

    def ours(query: Tensor, key: Tensor, vector: Tensor, value: Tensor) -> Call:
        score = partial(scores.additive, vector=vector)
        read = lambda: foci.attend(query, key, value, score=score).output  # noqa: E731
        return call(measure, read, (query, key, value), (vector,))

    def theirs(query: Tensor, key: Tensor, vector: Tensor, value: Tensor) -> Call:
        layer = _keras_additive(vector)
        return call(measure, lambda: layer([query, value, key]), (query, key, value), (layer.scale.value,))

    return Case(
        name=f"scores, softmax and reading {shape}",
        against="AdditiveAttention",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
    )


def _keras_additive(vector: Tensor) -> Any:
    import keras

    layer = keras.layers.AdditiveAttention()
    layer([torch.zeros(1, 1, len(vector))] * 3)  # builds it
    layer.scale.assign(vector.detach())
    return layer


# One step of a decoder


def _step(against: str, theirs: Side) -> Case:
    batch, queries, keys, size = STEP

    def inputs() -> tuple[nn.Module, nn.Linear, Tensor, Tensor]:
        attention = foci.build("additive", query_dim=size, key_dim=size, hidden_dim=size)
        return attention, nn.Linear(size, size), torch.randn(batch, queries, size), torch.randn(batch, keys, size)

    def ours(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
        with torch.no_grad():
            memory = attention.prepare(source)
        if theirs is _speechbrain_step:  # whose module ends with a projection
            return call(FORWARD, lambda: projection(attention.read(query, memory).output))
        return call(FORWARD, lambda: attention.read(query, memory).output)

    return Case(
        name=f"decoder step {STEP}",
        against=against,
        measure=FORWARD,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=7.0,
        work=("cell", prod(STEP)),
    )


def _short_step(measure: str, against: str, *, prepared: bool) -> Case:
    batch, queries, keys, size = SHORT_STEP

    def inputs() -> tuple[nn.Module, Tensor, Tensor]:
        attention = foci.build("additive", query_dim=size, key_dim=size, hidden_dim=size)
        return attention, leaf(batch, queries, size), leaf(batch, keys, size)

    def parameters(attention: Any) -> list[Tensor]:
        return [attention.score.vector, attention.score.query_layer.weight]

    def ours(attention: Any, query: Tensor, source: Tensor) -> Call:
        with torch.no_grad():
            memory = attention.prepare(source)
        if prepared:
            return call(measure, lambda: attention.read(query, memory).output, (query,), parameters(attention))
        return call(measure, lambda: attention(query, source).output, (query,), parameters(attention))

    def theirs(attention: Any, query: Tensor, source: Tensor) -> Call:
        score = attention.score
        with torch.no_grad():
            memory = score.key_layer(source)
            values = source.detach()

        def step() -> Tensor:
            keys = memory if prepared else score.key_layer(source)
            energies = torch.tanh(score.query_layer(query) + keys) @ score.vector
            return torch.softmax(energies, dim=-1).unsqueeze(1) @ (values if prepared else source)

        return call(measure, step, (query,), parameters(attention))

    name = "short decoder step" if prepared else "short attention"
    return Case(
        name=f"{name} {SHORT_STEP}",
        against=against,
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=1 / 1.3,
    )


def _plain_step(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
    score = attention.score
    with torch.no_grad():
        prepared = score.key_layer(source)

    def step() -> Tensor:
        energies = torch.tanh(score.query_layer(query) + prepared) @ score.vector
        return torch.softmax(energies, dim=-1).unsqueeze(1) @ source

    return call(FORWARD, step)


def _keras_step(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
    score = attention.score
    with torch.no_grad():
        prepared = score.key_layer(source)
    layer = _keras_additive(score.vector)
    return call(FORWARD, lambda: layer([score.query_layer(query), source, prepared]))


def _speechbrain_step(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
    stand_in_for_torchaudio()
    from speechbrain.nnet.attention import ContentBasedAttention

    size = source.shape[-1]
    peer = ContentBasedAttention(enc_dim=size, dec_dim=size, attn_dim=size, output_dim=size)
    with torch.no_grad():
        peer.mlp_enc.weight.copy_(attention.score.key_layer.weight)
        peer.mlp_dec.weight.copy_(attention.score.query_layer.weight)
        peer.mlp_enc.bias.zero_()
        peer.mlp_dec.bias.zero_()
        peer.mlp_attn.weight.copy_(attention.score.vector.unsqueeze(0))
        peer.mlp_out.load_state_dict(projection.state_dict())
    lengths, state = torch.ones(len(source)) * source.shape[1], query.squeeze(1)
    return call(FORWARD, lambda: peer(source, lengths, state)[0].unsqueeze(1))


def _espnet_step(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
    from espnet.nets.pytorch_backend.rnn.attentions import AttAdd

    size = source.shape[-1]
    peer = AttAdd(size, size, size)
    with torch.no_grad():
        peer.mlp_enc.weight.copy_(attention.score.key_layer.weight)
        peer.mlp_enc.bias.zero_()
        peer.mlp_dec.weight.copy_(attention.score.query_layer.weight)
        peer.gvec.weight.copy_(attention.score.vector.unsqueeze(0))
    lengths, state = [source.shape[1]] * len(source), query.squeeze(1)
    return call(FORWARD, lambda: peer(source, lengths, state, None, scaling=1.0)[0].unsqueeze(1))
