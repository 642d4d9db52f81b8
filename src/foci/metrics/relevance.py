"""Relevance through all layers: what of each input mattered for a score, by the weights of all attentions before.

    Ā = mean_h max(0, ∇A_h ∘ A_h)                                                            (5)
    self-attention of s:   R^ss ← R^ss + Ā R^ss,    R^sq ← R^sq + Ā R^sq                      (6, 7)
    s reads q:             R^sq ← R^sq + (R̄^ss)ᵀ Ā R̄^qq,    R^ss ← R^ss + Ā R^qs             (10, 11)
    R̄ = R̂ / (sum of each row of R̂) + I,  R̂ = R − I                                           (8, 9)

R begins with R^ss = R^qq = I and R^sq = R^qs = 0. And of one layer, by the vectors that its weights multiply:

    N_ij = ‖Σ_h a_hij f_h(x_j)‖,   f_h(x) = (x W_h^V + b_h^V) W_h^O,   Σ_j Σ_h a_hij f_h(x_j) + b^O = output_i

Paper: Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers (Chefer, Gur,
Wolf, 2021), equations 1 to 11; Attention is Not Only a Weight (Kobayashi, Kuribayashi, Yokoi, Inui, 2020), equations 3
to 5; the rollout: `foci.metrics.attention.rollout`
Differs: nothing; a row of R̂ that is 0, before the first self-attention, stays 0.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError, unknown_name
from foci.recording import Recording, edit, record
from foci.recording.projections import Projected

Streams = tuple[str, str]
"""Who reads, and what is read, each by its name; the same name twice for self-attention."""


def gradient_map(weights: Float[Tensor, "... H L S"], gradient: Float[Tensor, "... H L S"]) -> Float[Tensor, "... L S"]:
    """Return ``Ā``, the mean over heads of the positive part of weights times their gradient (equation 5)."""
    return (weights * gradient).clamp_min(0.0).mean(dim=-3)


def chefer(maps: Sequence[Tensor], streams: Sequence[Streams]) -> list[Tensor]:
    """Return ``R`` between the streams of each attention, as it is after that attention, ``(…, L, S)`` each.

    Args:
        maps: ``Ā`` of each attention, in the order in which they ran, ``(…, L, S)``.
        streams: of each, who reads and what is read; one or two streams in all.

    Example:
        >>> first, second = chefer([torch.full((2, 2), 0.5)] * 2, [("text", "text")] * 2)
        >>> first.tolist(), second.tolist()
        ([[1.5, 0.5], [0.5, 1.5]], [[2.5, 1.5], [1.5, 2.5]])
    """
    sizes: dict[str, int] = {}
    for number, (one, pair) in enumerate(zip(maps, streams)):
        for stream, size in zip(pair, one.shape[-2:]):
            if sizes.setdefault(stream, size) != size:
                raise ShapeError(
                    f"chefer: attention {number} has {size} positions of {stream!r}, expected {sizes[stream]}."
                )
    if len(sizes) > 2:
        raise ConfigError(f"chefer: the streams are {list(sizes)}, expected at most two.")
    relevance = {
        (one, other): torch.eye(sizes[one], dtype=maps[0].dtype, device=maps[0].device)
        if one == other
        else maps[0].new_zeros(sizes[one], sizes[other])
        for one in sizes
        for other in sizes
    }
    found = []
    for one, (reader, read) in zip(maps, streams):
        if reader == read:
            for other in sizes:
                relevance[reader, other] = relevance[reader, other] + one @ relevance[reader, other]
        else:
            mixed = _attended(relevance[reader, reader]).mT @ one @ _attended(relevance[read, read])
            own = one @ relevance[read, reader]
            relevance[reader, read] = relevance[reader, read] + mixed
            relevance[reader, reader] = relevance[reader, reader] + own
        found.append(relevance[reader, read])
    return found


def _attended(relevance: Tensor) -> Tensor:
    """Return ``R̄``: what was attended to as shares, beside the position itself (equations 8 and 9)."""
    identity = torch.eye(relevance.shape[-1], dtype=relevance.dtype, device=relevance.device)
    without = relevance - identity
    total = without.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, without / total, 0.0) + identity


def norms(
    weights: Float[Tensor, "B H L S"], projected: Projected, *, by_head: bool = False
) -> Float[Tensor, "B L S"] | Float[Tensor, "B H L S"]:
    """Return ``‖Σ_h a f_h(x)‖``, how much of what was added to each query comes from each position.

    Args:
        weights: the weights of a call.
        projected: the values and the output projection of the same call (`Recording.projected`).
        by_head: return ``‖a f_h(x)‖`` of each head instead, ``(B, H, L, S)``.
    """
    parts = torch.einsum("bhsk,hkd->bhsd", projected.values.double(), projected.weight.double())
    weights = weights.detach()
    if by_head:
        sizes: Tensor = parts.norm(dim=-1)
        return weights * sizes.to(weights.dtype).unsqueeze(-2)
    products = torch.einsum("bhsd,bgsd->bshg", parts, parts)  # instead of vectors (B, L, S, D)
    squared = torch.einsum("bhls,bgls,bshg->bls", weights.double(), weights.double(), products)
    return squared.clamp_min(0.0).sqrt().to(weights.dtype)


def _rollout(tape: Recording, keys: Sequence[str], streams: Sequence[Streams]) -> list[Tensor]:
    if len({*streams}) > 1 or len({*streams[0]}) > 1:
        raise ConfigError("relevances: rollout is for layers of self-attention of one stream. Use chefer.")
    found, reached = [], None
    for key in keys:
        weights = _heads_first(tape[key].dense().detach()).mean(dim=-3)
        mixed = weights + torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        reached = mixed if reached is None else mixed @ reached
        found.append(reached)
    return found


def _gradient_maps(tape: Recording, keys: Sequence[str], streams: Sequence[Streams]) -> list[Tensor]:
    found, lacking = [], []
    for key in keys:
        gradient = tape.gradient(key)
        if gradient is None:
            lacking.append(key)
        else:
            found.append(gradient_map(_heads_first(tape[key].dense().detach()), _heads_first(gradient)))
    if lacking:
        raise ConfigError(
            f"relevances: {', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no gradient. Record with "
            "foci.record(model, gradients=True), and call backward on the score that is to be explained."
        )
    return found


def _chefer(tape: Recording, keys: Sequence[str], streams: Sequence[Streams]) -> list[Tensor]:
    return chefer(_gradient_maps(tape, keys, streams), streams)


def _norms(tape: Recording, keys: Sequence[str], streams: Sequence[Streams]) -> list[Tensor]:
    found = []
    for key in keys:
        found.append(norms(_heads_first(tape[key].dense()), tape.projected(key)))
    return found


METHODS: dict[str, Callable[[Recording, Sequence[str], Sequence[Streams]], list[Tensor]]] = {
    "chefer": _chefer,
    "gradient": _gradient_maps,
    "norms": _norms,
    "rollout": _rollout,
}
"""Ways to a relevance from a tape alone. `value_zeroing` runs the model again."""


def relevances(
    tape: Recording, method: str = "chefer", *, streams: Mapping[str, Streams] | None = None
) -> dict[str, Float[Tensor, "B L S"]]:
    """Return the relevance ``(B, L, S)`` at each attention of a tape, by its key, in order of execution.

    Args:
        tape: recorded with ``gradients=True`` for "chefer" and "gradient", and `backward` called on a score since; with
            ``values=True`` for "norms".
        method: "chefer" (``R`` through all layers, the identity included), "gradient" (attention × gradient of the
            layer), "norms" (of weighted, projected values), or "rollout".
        streams: of each attention who reads and what is read, by names of your choice and patterns of paths:
            ``{"encoder.*": ("source", "source"), "*.self_attn": ("target", "target"), "*": ("target", "source")}``, of
            which the first that fits is taken. Attentions that no pattern fits are left out. Default: all are
            self-attention of one sequence.

    Example:
        >>> import foci
        >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True).eval()
        >>> with foci.record(model, gradients=True) as tape:
        ...     score = model(torch.randn(1, 3, 8))[0, 0].sum()
        >>> score.backward()
        >>> relevances(tape, "chefer")["self_attn"].shape
        torch.Size([1, 3, 3])
    """
    if method not in METHODS:
        raise unknown_name("relevance", method, METHODS)
    tape.check_not_empty("relevances")
    keys, pairs = [], []
    for key in tape:
        pair = _streams_of(key.partition("#")[0], streams)
        if pair is not None:
            keys.append(key)
            pairs.append(pair)
    if not keys:
        raise ConfigError(f"relevances: no pattern of streams fits a path. The paths are {', '.join(tape.paths)}.")
    shapes = {tuple(tape[key].shape[-2:]) for key in keys}
    if streams is None and (len(shapes) > 1 or any(rows != columns for rows, columns in shapes)):
        raise ShapeError(
            f"relevances: the weights have shapes (…, L, S) of {sorted(shapes)}, expected (…, L, L) of one sequence. "
            'Say who reads what: streams={"encoder.*": ("source", "source"), …}.'
        )
    return dict(zip(keys, METHODS[method](tape, keys, pairs)))


def _streams_of(path: str, streams: Mapping[str, Streams] | None) -> Streams | None:
    if streams is None:
        return "sequence", "sequence"
    return next((pair for pattern, pair in streams.items() if fnmatch.fnmatchcase(path, pattern)), None)


def _heads_first(weights: Tensor) -> Tensor:
    """Return weights ``(B, L, S)`` with an axis for their one head."""
    return weights.unsqueeze(1) if weights.dim() == 3 else weights


class _EnoughError(Exception):
    """The layer has returned."""


@torch.no_grad()
def value_zeroing(
    model: nn.Module, run: Callable[[], object], paths: Sequence[str] | None = None
) -> dict[str, Float[Tensor, "B L S"]]:
    """Return how far the output of each layer turns when the value of a position is zero, each row scaled to sum to 1.

        C_ij = 1 − cos(x_i, x_i without v_j),   for all heads of one layer, the layers below unchanged

    The layer is the innermost module with a number around the attention, ``encoder.layers.3`` of
    ``encoder.layers.3.self_attn``; without one it is the attention. The model runs once for each position of each
    attention, up to the layer.

    Paper: Quantifying Context Mixing in Transformers (Mohebbi, Zuidema, Chrupała, Alishahi, 2023), section 3

    Args:
        model: any module that `foci.edit` can change, in evaluation mode.
        run: calls the model, always in the same way.
        paths: keys of a tape: of which attentions. Default: all.

    Example:
        >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True).eval()
        >>> x = torch.randn(1, 3, 8)
        >>> value_zeroing(model, lambda: model(x))["self_attn"].sum(-1).tolist()
        [[1.0, 1.0, 1.0]]
    """
    if model.training:
        raise ConfigError("value_zeroing: the model is in training, where its output is random. Call model.eval().")
    with record(model, detach=True) as tape:
        run()
    tape.check_not_empty("value_zeroing")
    keys = list(tape) if paths is None else list(paths)
    sizes = {key: tape[key].shape[-1] for key in keys}
    found = {}
    for key in keys:
        path, _, number = key.partition("#")
        layer, call = model.get_submodule(_layer_of(path)), int(number or 0)
        whole = _output(model, run, layer, call, path, None)
        dtype, whole = whole.dtype, whole.double()
        columns = []
        for position in range(sizes[key]):
            without = _output(model, run, layer, call, path, position).double()
            columns.append(1.0 - torch.cosine_similarity(whole, without, dim=-1))
        turned = torch.stack(columns, dim=-1).clamp_min(0.0)
        total = turned.sum(dim=-1, keepdim=True)
        found[key] = torch.where(total > 0, turned / total, 0.0).to(dtype)
    return found


def _layer_of(path: str) -> str:
    """Return the path of the innermost module with a number around an attention, or else its own."""
    parts = path.split(".")
    last = next((place for place in range(len(parts) - 1, 0, -1) if parts[place - 1].isdecimal()), None)
    return "" if path == "." else path if last is None else ".".join(parts[:last])


def _output(
    model: nn.Module, run: Callable[[], object], layer: nn.Module, call: int, path: str, position: int | None
) -> Tensor:
    """Return what a call of a layer gives, ``(B, L, D)``, with the value of a position zero or with all."""
    given: list[Tensor] = []

    def keep(module: nn.Module, args: object, output: Any) -> None:
        given.append(output if isinstance(output, Tensor) else output[0])
        if len(given) > call:
            raise _EnoughError

    handle = layer.register_forward_hook(keep)
    try:
        with edit(model) as edits:
            if position is not None:
                edits.zero_values(path, position, call=call)
            run()
    except _EnoughError:
        pass
    finally:
        handle.remove()
    if len(given) <= call or given[call].dim() != 3:
        raise ConfigError(f"value_zeroing: the layer around {path!r} gave no output (batch, position, feature).")
    return given[call]
