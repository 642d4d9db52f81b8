"""Parts of one's own, and what is checked of them.

    scores   = score(query, key)           query (…, L, D), key (…, S, Dk), scores (…, L, S)
    limits   = focus(query, key)           a mask as in `foci.masks`, or a bias: numbers for the scores
    weights  = normalize(scores, mask)     mask, or None; (weights, log-probability) if it samples
    attended = after(query, attended)      an AttentionOutput

That an object can be called like this is checked where it is passed, what it returns at its first call, once: types,
shapes, dtypes, and that no weight falls on a masked position. Nothing is checked while a program is traced.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection
from contextlib import suppress
from types import MethodType
from typing import Any
from weakref import WeakValueDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_shape
from foci.errors import ConfigError, ShapeError, unknown_name
from foci.functional.sample import Drawn
from foci.outputs import AttentionOutput
from foci.tracing import is_traced, is_watched
from foci.weights import Weights
from foci.weights.sources import scores_shape

OwnScore = Callable[[Tensor, Tensor], Tensor]
"""``(query, key) -> scores``."""

OwnNormalizer = Callable[[Tensor, Tensor | None], Tensor | tuple[Tensor, Tensor | None] | Drawn]
"""``(scores, mask) -> weights``; one that samples may also return their log-probability, or `Drawn`."""

OwnFocus = Callable[[Tensor, Tensor], Tensor]
"""``(query, key) -> mask or bias``."""

OwnStage = Callable[[Tensor, AttentionOutput], AttentionOutput]
"""``(query, attended) -> attended``."""

_PROTOCOLS = {"score": "Score", "normalizer": "Normalizer", "focus": "Focus", "after": "Stage"}
"""The protocols of `foci.mechanisms.parts`, by what messages call a part."""

_CHECKED: WeakValueDictionary[tuple[int, Any, str], Any] = WeakValueDictionary()
"""The objects that were checked, by their id and what was checked. Nothing is kept on the objects themselves."""
_NOT_CHECKED = object()


def own_scores(
    score: OwnScore, query: Float[Tensor, "... L D"], key: Float[Tensor, "... S Dk"]
) -> Float[Tensor, "... L S"]:
    """Return the scores of a score of one's own."""
    if not is_first_call(score, "scores", query, key):
        return score(query, key)
    check_takes("score", score, "query", "key")
    if getattr(score, "remembers", False):
        raise ConfigError(
            f"score {name_of(score)}: it depends on the weights of the previous query, expected one that does not. Use "
            "foci.Attention(score=…), which passes them on."
        )
    scores = score(query, key)
    check_returned("score", score, "scores", scores, scores_shape(query, key), query.dtype)
    mark_checked(score, "scores")
    return scores


def own_weights(
    normalize: OwnNormalizer, scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None
) -> tuple[Float[Tensor, "... L S"], Tensor | None] | Drawn:
    """Return the weights of a normalizer of one's own and, of one that samples, what else `Drawn` has.

    It sees a row that may read nothing as one that may read everything, so that it needs no case for it; the row's
    weights become 0 here.
    """
    if mask is None:
        return _returned_by(normalize, scores, None)
    dead = ~mask.any(dim=-1, keepdim=True)
    weights, *sampled = _returned_by(normalize, scores, mask | dead)
    weights = weights.masked_fill(dead, 0.0)
    log_prob, *probabilities = (
        None if one is None else one.masked_fill(dead if one.dim() == dead.dim() else dead.squeeze(-1), 0.0)
        for one in sampled
    )
    return (weights, log_prob) if not probabilities else Drawn(weights, log_prob, probabilities[0])  # type: ignore[arg-type]


def own_limits(
    focus: OwnFocus, query: Float[Tensor, "... L D"], key: Float[Tensor, "... S Dk"]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the mask of a focus of one's own, or its bias."""
    if is_first_call(focus, "limits", query, key):
        check_takes("focus", focus, "query", "key")
        mark_checked(focus, "limits")
    found: object = focus(query, key)
    if not isinstance(found, Tensor):
        raise ConfigError(
            f"focus {name_of(focus)}: it returned a {type(found).__name__}, expected a boolean mask or a bias of "
            "numbers, (batch, query, key), where an axis of size 1 broadcasts."
        )
    return (None, found) if found.is_floating_point() else (found, None)


def own_stage(
    owner: str,
    after: OwnStage,
    query: Float[Tensor, "... L D"],
    attended: AttentionOutput,
    dead: Bool[Tensor, "... #L 1"] | None,
) -> AttentionOutput:
    """Return the result of a stage of one's own; by the mask rule it is 0 for queries that may read nothing."""
    first = is_first_call(after, "attended", query)
    if first:
        check_takes("after", after, "query", "attended")
    found = after(query, attended)
    if first:
        check_attended(f"{owner}: after", found, attended.weights.shape, rows=attended.output.shape[:-1])
        mark_checked(after, "attended")
    return found if dead is None else found._replace(output=found.output.masked_fill(dead, 0.0))


def _returned_by(normalize: OwnNormalizer, scores: Tensor, mask: Tensor | None) -> tuple[Any, Any] | Drawn:
    """Return the weights and what goes with a sample, checked at the first call."""
    first = is_first_call(normalize, "weights", scores)
    if first:
        check_takes("normalizer", normalize, "scores", "mask")
    returned = normalize(scores, mask)
    found: tuple[Any, ...] = returned if isinstance(returned, tuple) else (returned,)
    if first:
        if len(found) > len(Drawn._fields):
            raise ConfigError(
                f"normalizer {name_of(normalize)}: it returned a tuple of {len(found)}, expected weights."
            )
        for what, one, shape in zip(Drawn._fields, found, (scores.shape, scores.shape[:-1], scores.shape)):
            if one is not None or what == "weights":
                check_returned("normalizer", normalize, what, one, shape, scores.dtype)
        mark_checked(normalize, "weights")
    if mask is not None and is_first_call(normalize, "mask", scores) and not mask.all():
        _check_zero(
            f"normalizer {name_of(normalize)}: it gives",
            found[0].masked_select(~mask),
            "Where the mask is False, put scores to -inf before a softmax, or set the weights to 0.",
        )
        mark_checked(normalize, "mask")
    return Drawn(*found) if len(found) == 3 else (found[0], found[1] if len(found) == 2 else None)


def is_first_call(part: object, what: str, *tensors: Tensor) -> bool:
    """Return whether this is to be checked now: it was not before, and the tensors' numbers can be looked at."""
    if is_traced():
        return False
    owner, function = _lasting_parts(part)
    if _CHECKED.get((id(owner), function, what), _NOT_CHECKED) is owner:
        return False
    return not is_watched(*tensors) and not any(tensor.is_meta for tensor in tensors)


def mark_checked(part: object, what: str) -> None:
    """Remember that this was checked; an object without weak references is checked at every call."""
    owner, function = _lasting_parts(part)
    with suppress(TypeError):
        _CHECKED[id(owner), function, what] = owner


def _lasting_parts(part: object) -> tuple[object, object]:
    """Return the object that lives as long as the part: of a method, which is a new object each time, its owner."""
    return (part.__self__, part.__func__) if isinstance(part, MethodType) else (part, None)


def check_named_or_takes(kind: str, part: object, names: Collection[str], *arguments: str) -> None:
    """Raise unless this is one of the names, or a part of one's own that can be called with these arguments."""
    if not isinstance(part, str):
        check_takes(kind, part, *arguments)
    elif part not in names:
        raise unknown_name(kind, part, names)


def check_takes(kind: str, part: object, *arguments: str) -> None:
    """Raise unless the part can be called with these arguments."""
    call, protocol = f"{kind}({', '.join(arguments)})", f"foci.mechanisms.parts.{_PROTOCOLS[kind]}"
    if isinstance(part, type):
        raise ConfigError(f"{kind} is the class {part.__name__}, expected an object. Build it: {part.__name__}(…).")
    function = part.forward if isinstance(part, nn.Module) else part
    if not callable(function) or getattr(function, "__func__", None) is nn.Module.forward:
        lacks = " It has no forward." if isinstance(part, nn.Module) else ""
        raise ConfigError(
            f"{kind} is a {type(part).__name__}, expected a name, or a function or module called as {call}, by the "
            f"protocol {protocol}.{lacks}"
        )
    try:
        signature = inspect.signature(function)
    except ValueError as error:  # a builtin of torch, such as torch.softmax
        raise ConfigError(
            f"{kind} {name_of(part)}: the arguments it takes cannot be found out, expected a function or module called "
            f"as {call}, by the protocol {protocol}. Wrap it in a function of yours with these arguments."
        ) from error
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise ConfigError(
            f"{kind} {name_of(part)}: it takes {signature}, expected a function or module called as {call}, by the "
            f"protocol {protocol}: {error}."
        ) from error


def check_returned(
    kind: str, part: object, what: str, found: object, shape: torch.Size, dtype: torch.dtype | None
) -> None:
    """Raise unless the part has returned a tensor of this shape and, outside of autocast, of this dtype."""
    if not isinstance(found, Tensor):
        raise ConfigError(
            f"{kind} {name_of(part)}: it returned a {type(found).__name__}, expected {what} as a torch.Tensor of shape "
            f"{tuple(shape)}."
        )
    if found.shape != shape:
        raise ShapeError(
            f"{kind} {name_of(part)}: it returned {what} of shape {tuple(found.shape)}, expected {tuple(shape)}."
        )
    if dtype is not None and found.dtype != dtype and not torch.is_autocast_enabled(found.device.type):
        raise ShapeError(
            f"{kind} {name_of(part)}: it returned {what} of dtype {found.dtype}, expected {dtype}, that of its input. "
            f"Convert them with .to({'query' if kind == 'score' else 'scores'}.dtype)."
        )


def check_attended(
    owner: str,
    attended: object,
    shape: torch.Size,
    value_dim: int | None = None,
    rows: torch.Size | None = None,
) -> None:
    """Raise unless this is the result of a read with scores of this shape.

    Args:
        owner: who returned it, for messages.
        attended: what was returned.
        shape: of the scores, ``(…, L, S)``.
        value_dim: features of the output. Default: any number.
        rows: the axes of the output before the features. Default: those of the scores, ``(…, L)``.
    """
    if not isinstance(attended, AttentionOutput):
        raise ConfigError(
            f"{owner}: it returned a {type(attended).__name__}, expected a foci.AttentionOutput. Return "
            "AttentionOutput(output, Weights.from_tensor(weights)), or attended._replace(output=…)."
        )
    output, weights, _ = attended
    if not isinstance(output, Tensor) or not isinstance(weights, Weights):
        raise ConfigError(
            f"{owner}: it returned an AttentionOutput of a {type(output).__name__} and a {type(weights).__name__}, "
            "expected a torch.Tensor and foci.Weights. Make these with foci.Weights.from_tensor(weights)."
        )
    features = "feature" if value_dim is None else value_dim
    check_shape(owner, "the returned output", output, *(shape[:-1] if rows is None else rows), features)
    if weights.shape != shape:
        raise ShapeError(f"{owner}: the returned weights have shape {tuple(weights.shape)}, expected {tuple(shape)}.")


def check_closed(owner: str, attended: AttentionOutput, mask: Bool[Tensor, "..."]) -> None:
    """Raise if weight falls on a masked position."""
    _check_zero(
        f"{owner}: its parts give",
        attended.weights.mass(~mask),
        "A focus of your own must keep Reading.mask, as reading.attend() does.",
    )


def _check_zero(gives: str, closed: Tensor, fix: str) -> None:
    """Raise unless the weights of masked positions are 0."""
    if closed.isnan().any():
        raise ConfigError(
            f"{gives} NaN as weights, expected finite numbers. Look for 0 / 0 and inf - inf, also in scores and biases."
        )
    if (closed != 0).any():
        raise ConfigError(f"{gives} weight to masked positions, expected 0 there. {fix}")


def own_copy(part: Any) -> Any:
    """Return a copy of a module of one's own for one of the attentions that options describe; all else as it is."""
    return copy.deepcopy(part) if isinstance(part, nn.Module) else part


def name_of(part: object) -> str:
    """Return what messages call a part."""
    if isinstance(part, str):
        return part
    name: str = getattr(part, "__name__", type(part).__name__)
    return name
