"""Location-aware attention

A decoder of speech that has prepared its source, sizes (batch, queries, cells, hidden), with 10 filters of width 201 as
in the recipes of ESPnet and SpeechBrain: one step in inference, and the training of 50 steps, which are read one by
one as a decoder does that feeds its output back, or in one call, where all queries are known. SpeechBrain passes no
gradient through the weights of the previous step, so ours does not against it, either; reading all steps in one call
does pass it and is compared with ESPnet only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import foci
from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from benchmarks.peers import stand_in_for_torchaudio
from foci.mechanisms.scores import LocationAware

STEPS = ((16, 1, 400, 128), (64, 1, 1000, 256))
TRAINED = (16, 50, 400, 128)
FILTERS, REACH = 10, 100
"""A filter sees this many cells to either side."""

Shape = tuple[int, int, int, int]
Decoder = Callable[[Tensor, Tensor], Tensor]
"""``(query (B, L, D), source (B, S, D)) -> output (B, L, D)``, read step by step from uniform weights on."""


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against one peer."""
    theirs = _speechbrain if peer == "speechbrain" else _espnet
    for shape in STEPS[:1] if quick else STEPS:
        yield _step(peer, shape, theirs)
    yield _training(peer, theirs, at_once=False)
    if peer == "espnet":
        yield _training(peer, theirs, at_once=True)


def _modules(shape: Shape) -> tuple[Any, nn.Linear]:
    """Our attention, and the projection with which SpeechBrain's ends."""
    size = shape[-1]
    score = LocationAware(size, size, size, num_filters=FILTERS, kernel_size=2 * REACH + 1)
    return foci.Attention(size, size, size, score=score), nn.Linear(size, size)


def _uniform(source: Tensor) -> Tensor:
    return source.new_full(source.shape[:2], 1 / source.shape[1])


def _step(peer: str, shape: Shape, theirs: Callable[..., tuple[Decoder, nn.Module]]) -> Case:
    batch, queries, cells, size = shape

    def inputs() -> tuple[Any, nn.Linear, Tensor, Tensor]:
        return *_modules(shape), torch.randn(batch, queries, size), torch.randn(batch, cells, size)

    def our_step(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
        with torch.no_grad():
            memory, state = attention.prepare(source), _uniform(source)
        if peer == "speechbrain":
            return call(FORWARD, lambda: projection(attention.read(query, memory, state).output))
        return call(FORWARD, lambda: attention.read(query, memory, state).output)

    def their_step(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
        _, module = theirs(attention, projection)
        lengths, state = _lengths(peer, source), _uniform(source)
        if peer == "speechbrain":
            return call(FORWARD, lambda: module(source, lengths, query.squeeze(1))[0].unsqueeze(1))
        return call(FORWARD, lambda: module(source, lengths, query.squeeze(1), state, scaling=1.0)[0].unsqueeze(1))

    return Case(
        name=f"decoder step {shape}",
        against="LocationAwareAttention" if peer == "speechbrain" else "AttLoc",
        measure=FORWARD,
        inputs=inputs,
        ours=our_step,
        theirs=their_step,
        goal=8.0,
    )


def _training(peer: str, theirs: Callable[..., tuple[Decoder, nn.Module]], *, at_once: bool) -> Case:
    batch, queries, cells, size = TRAINED

    def inputs() -> tuple[Any, nn.Linear, Tensor, Tensor]:
        return *_modules(TRAINED), leaf(batch, queries, size), leaf(batch, cells, size)

    def our_steps(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
        def decode() -> Tensor:
            memory, state = attention.prepare(source), _uniform(source)
            if at_once:
                output: Tensor = attention.read(query, memory, state).output
                return output
            outputs = []
            for one in query.split(1, dim=1):
                read = attention.read(one, memory, state)
                state = read.state.detach() if peer == "speechbrain" else read.state
                outputs.append(projection(read.output) if peer == "speechbrain" else read.output)
            return torch.cat(outputs, dim=1)

        parameters = [*attention.parameters(), *(projection.parameters() if peer == "speechbrain" else ())]
        return call(TRAIN, decode, (query, source), parameters)

    def their_steps(attention: Any, projection: nn.Linear, query: Tensor, source: Tensor) -> Call:
        decode, module = theirs(attention, projection)
        return call(TRAIN, lambda: decode(query, source), (query, source), list(module.parameters()))

    return Case(
        name=f"{queries} steps{' in one call' if at_once else ''} {TRAINED}",
        against="LocationAwareAttention" if peer == "speechbrain" else "AttLoc",
        measure=TRAIN,
        inputs=inputs,
        ours=our_steps,
        theirs=their_steps,
        tolerance=1e-3,
        goal=5.0,
    )


def _lengths(peer: str, source: Tensor) -> Any:
    batch, cells = source.shape[:2]
    return torch.full((batch,), float(cells)) if peer == "speechbrain" else [cells] * batch


def _speechbrain(attention: Any, projection: nn.Linear) -> tuple[Decoder, nn.Module]:
    stand_in_for_torchaudio()
    from speechbrain.nnet.attention import LocationAwareAttention

    score, size = attention.score, projection.in_features
    peer = LocationAwareAttention(size, size, size, size, FILTERS, REACH)
    with torch.no_grad():
        peer.mlp_enc.load_state_dict(score.key_layer.state_dict())
        peer.mlp_dec.weight.copy_(score.query_layer.weight)
        peer.mlp_dec.bias.zero_()
        peer.mlp_loc.weight.copy_(score.filter_layer.weight)
        peer.mlp_loc.bias.zero_()
        peer.conv_loc.weight.copy_(score.filters.weight)
        peer.mlp_attn.weight.copy_(score.vector.unsqueeze(0))
        peer.mlp_out.load_state_dict(projection.state_dict())

    def decode(query: Tensor, source: Tensor) -> Tensor:
        peer.reset()
        lengths = _lengths("speechbrain", source)
        return torch.stack([peer(source, lengths, one)[0] for one in query.unbind(dim=1)], dim=1)

    return decode, peer


def _espnet(attention: Any, projection: nn.Linear) -> tuple[Decoder, nn.Module]:
    from espnet.nets.pytorch_backend.rnn.attentions import AttLoc

    score, size = attention.score, projection.in_features
    peer = AttLoc(size, size, size, FILTERS, REACH)
    with torch.no_grad():
        peer.mlp_enc.load_state_dict(score.key_layer.state_dict())
        peer.mlp_dec.weight.copy_(score.query_layer.weight)
        peer.mlp_att.weight.copy_(score.filter_layer.weight)
        peer.loc_conv.weight.copy_(score.filters.weight.unsqueeze(2))
        peer.gvec.weight.copy_(score.vector.unsqueeze(0))
        peer.gvec.bias.zero_()

    def decode(query: Tensor, source: Tensor) -> Tensor:
        peer.reset()
        outputs, state = [], _uniform(source)
        for one in query.unbind(dim=1):
            output, state = peer(source, _lengths("espnet", source), one, state, scaling=1.0)
            outputs.append(output)
        return torch.stack(outputs, dim=1)

    return decode, peer
