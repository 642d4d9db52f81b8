"""Additive attention

`vᵀ tanh(query + key)` for every pair of query and key, sizes (batch, queries, keys, hidden). The broadcast form, one
tensor with a number for each query, key and hidden unit, is what Keras, OpenNMT-py, eole, AllenNLP and d2l compute.
A step is one query of a decoder that has prepared its source: no key is projected again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

import foci
from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from foci.functional import scores

PEERS = ("torch", "keras", "eole", "speechbrain", "espnet")

LARGE = ((64, 50, 50, 512), (8, 512, 512, 256))
STEP = (64, 1, 50, 512)


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against one peer."""
    if peer == "torch":
        yield from _scores(quick)
        yield from _steps("a prepared step in plain torch", _plain_step)
    elif peer == "keras":
        yield from _keras_layer(quick)
        yield from _steps("AdditiveAttention", _keras_step)
    elif peer == "eole":
        yield from _eole_scores(quick)
    elif peer == "speechbrain":
        yield from _steps("ContentBasedAttention", _speechbrain_step, project=True)
    elif peer == "espnet":
        yield from _steps("AttAdd", _espnet_step)


def _goals(measure: str, shape: Sequence[int]) -> dict[str, object]:
    cells = float(torch.Size(shape).numel())
    work = ("cell", cells) if measure == FORWARD else None
    return {"goal": 50.0 if measure == FORWARD else 40.0, "memory": True, "memory_goal": 40.0, "work": work}


def _shapes(quick: bool) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    for shape in LARGE[:1] if quick else LARGE:
        for measure in (FORWARD, TRAIN):
            yield measure, shape


# The scores alone, against the broadcast form


def broadcast(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    """Every sum in one tensor (batch, queries, keys, hidden)."""
    return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ vector


def _projected(shape: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    batch, queries, keys, hidden = shape
    return leaf(batch, queries, hidden), leaf(batch, keys, hidden), leaf(hidden, scale=hidden**-0.5)


def _scores(quick: bool) -> Iterator[Case]:
    for measure, shape in _shapes(quick):

        def side(form: object, measure: str, *inputs: Tensor) -> Call:
            return call(measure, lambda: form(*inputs), inputs)  # type: ignore[operator]

        yield Case(
            name=f"scores {shape}",
            against="broadcast form",
            measure=measure,
            inputs=partial(_projected, shape),
            ours=partial(side, scores.additive, measure),
            theirs=partial(side, broadcast, measure),
            **_goals(measure, shape),  # type: ignore[arg-type]
        )


# eole's module: the projections and the scores


def _eole_scores(quick: bool) -> Iterator[Case]:
    for measure, shape in _shapes(quick):
        batch, queries, keys, hidden = shape

        def inputs(
            batch: int = batch, queries: int = queries, keys: int = keys, hidden: int = hidden
        ) -> tuple[nn.Module, Tensor, Tensor]:
            score = foci.mechanisms.scores.Additive(hidden, hidden, bias=True)
            return score, leaf(batch, queries, hidden), leaf(batch, keys, hidden)

        def ours(score: nn.Module, query: Tensor, key: Tensor, measure: str = measure) -> Call:
            return call(measure, lambda: score(query, key), (query, key), list(score.parameters()))

        def theirs(score: nn.Module, query: Tensor, key: Tensor, measure: str = measure) -> Call:
            from eole.modules.global_attention import GlobalAttention

            peer = GlobalAttention(query.shape[-1], attn_type="mlp")
            with torch.no_grad():
                peer.linear_query.weight.copy_(score.query_layer.weight)
                peer.linear_query.bias.copy_(score.key_layer.bias)  # one bias inside the tanh: whose it is does not matter
                peer.linear_context.weight.copy_(score.key_layer.weight)
                peer.v.weight.copy_(score.vector.unsqueeze(0))
            parameters = [*peer.linear_query.parameters(), *peer.linear_context.parameters(), *peer.v.parameters()]
            return call(measure, lambda: peer.score(query, key), (query, key), parameters)

        yield Case(
            name=f"projections and scores {shape}",
            against="GlobalAttention.score",
            measure=measure,
            inputs=inputs,
            ours=ours,
            theirs=theirs,
        )


# The whole attention, against Keras, whose layer does not project


def _attention_inputs(shape: Sequence[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, queries, keys, hidden = shape
    query, key, vector = _projected(shape)
    return query, key, leaf(batch, keys, hidden), vector


def _keras_layer(quick: bool) -> Iterator[Case]:
    for measure, shape in _shapes(quick):

        def ours(query: Tensor, key: Tensor, value: Tensor, vector: Tensor, measure: str = measure) -> Call:
            score = partial(scores.additive, vector=vector)
            return call(
                measure, lambda: foci.attend(query, key, value, score=score).output, (query, key, value), (vector,)
            )

        def theirs(query: Tensor, key: Tensor, value: Tensor, vector: Tensor, measure: str = measure) -> Call:
            layer = _keras_additive(query, key, value, vector)
            return call(measure, lambda: layer([query, value, key]), (query, key, value), (layer.scale.value,))

        yield Case(
            name=f"scores, softmax and reading {shape}",
            against="AdditiveAttention",
            measure=measure,
            inputs=partial(_attention_inputs, shape),
            ours=ours,
            theirs=theirs,
        )


def _keras_additive(query: Tensor, key: Tensor, value: Tensor, vector: Tensor) -> nn.Module:
    import keras

    layer: nn.Module = keras.layers.AdditiveAttention()
    layer([query[:, :1], value[:, :1], key[:, :1]])  # builds it
    layer.scale.assign(vector.detach())
    return layer


# One step of a decoder


def _step_inputs() -> tuple[nn.Module, nn.Linear, Tensor, Tensor]:
    batch, queries, keys, size = STEP
    attention = foci.build("additive", query_dim=size, key_dim=size, hidden_dim=size)
    projection = nn.Linear(size, size)
    return attention, projection, torch.randn(batch, queries, size), torch.randn(batch, keys, size)


def _steps(against: str, theirs: object, *, project: bool = False) -> Iterator[Case]:
    def ours(attention: nn.Module, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
        with torch.no_grad():
            memory = attention.prepare(source)
        if project:
            return call(FORWARD, lambda: projection(attention.read(query, memory).output))
        return call(FORWARD, lambda: attention.read(query, memory).output)

    yield Case(
        name=f"decoder step {STEP}",
        against=against,
        measure=FORWARD,
        inputs=_step_inputs,
        ours=ours,
        theirs=theirs,  # type: ignore[arg-type]
        goal=7.0,
        work=("cell", float(torch.Size(STEP).numel())),
    )


def _plain_step(attention: nn.Module, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
    score = attention.score
    with torch.no_grad():
        prepared = score.project_key(source)

    def step() -> Tensor:
        energies = torch.tanh(score.project_query(query) + prepared) @ score.vector
        return torch.softmax(energies, dim=-1).unsqueeze(1) @ source

    return call(FORWARD, step)


def _keras_step(attention: nn.Module, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
    score = attention.score
    with torch.no_grad():
        prepared = score.project_key(source)
        layer = _keras_additive(query, prepared, source, score.vector)
    return call(FORWARD, lambda: layer([score.project_query(query), source, prepared]))


def _speechbrain_step(attention: nn.Module, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
    import importlib.machinery
    import sys
    import types

    empty = types.ModuleType("torchaudio")
    empty.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
    sys.modules.setdefault("torchaudio", empty)
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


def _espnet_step(attention: nn.Module, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
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
