"""The laws of the contract, each a function that tries one on a `Subject` and raises where it does not hold.

The same laws hold for all mechanisms of the catalog (tests/contract).
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.autograd.gradcheck import GradcheckError

from foci.contract.subject import B, Inputs, L, R, S, Subject, numbers, weights_of_result
from foci.functional.attend import attend
from foci.functional.own_parts import check_attended
from foci.outputs import AttentionOutput, PairOutput
from foci.recording import record
from foci.weights import Weights

_HALF_TOLERANCE = 0.05
"""Of the largest number of an output: what bfloat16 may change, which has 8 bits."""


class Broken(Exception):  # noqa: N818
    """A law does not hold; the message says what was seen."""


class NotTried(Exception):  # noqa: N818
    """A law could not be tried; the message says why."""


@dataclass(frozen=True)
class Law:
    """A law: what is to hold, how it is tried, and how it can be mended where it does not hold."""

    name: str
    attempt: Callable[[Subject], None]
    fix: str


def call(module: nn.Module, inputs: Inputs) -> Any:
    """Call the module, with the same samples each time."""
    torch.manual_seed(5)
    return module(*inputs.tensors, **inputs.masks)


def results_and_gradients(module: nn.Module, inputs: Inputs) -> list[Tensor]:
    """Return the numbers of a result, and the gradients of inputs and parameters for a loss over all of them."""
    inputs = inputs.leaves()
    module.zero_grad()
    found = numbers(call(module, inputs))
    loss = torch.stack([one.square().sum() for one in found]).sum()
    leaves = [*inputs.tensors, *module.parameters()]
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else ()
    return [*found, *(one for one in gradients if one is not None)]


def check_same(what: str, found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-4) -> None:
    """Raise unless all numbers are finite and the same."""
    for ours, theirs in zip(found, (one.detach() for one in expected), strict=True):
        if ours.shape != theirs.shape:
            raise Broken(f"{what}: shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}.")
        if not ours.isfinite().all():
            raise Broken(f"{what}: numbers are NaN or infinite.")
        if ours.numel():
            difference = float((ours.detach() - theirs).abs().max())
            if difference > tolerance * max(1.0, float(theirs.abs().max())):
                raise Broken(f"{what}: numbers differ by up to {difference:.2g}.")


def returns_a_result(subject: Subject) -> None:
    """The result has the type and the shapes of its family."""
    result = call(subject.make(), Inputs(subject.inputs().tensors, {}, {}))
    size = subject.sizes
    if subject.family == "attend":
        shape = torch.Size((B, L, S))
        if (
            isinstance(result, AttentionOutput)
            and isinstance(result.weights, Weights)
            and len(result.weights.shape) == 4
        ):
            shape = torch.Size((B, result.weights.shape[1], L, S))
            if result.weights.shape != shape or result.output.shape[:2] != (B, L):
                raise Broken(f"weights have shape {tuple(result.weights.shape)}, expected {tuple(shape)}.")
        else:
            check_attended(subject.title.partition(",")[0], result, shape)
    elif subject.family == "memory":
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
            raise Broken(f"it returned a {type(result).__name__}, expected (output, state).")
    else:
        wanted = PairOutput if subject.family == "pair" else AttentionOutput
        if not isinstance(result, wanted) or not isinstance(result.weights, Weights):
            raise Broken(f"it returned a {type(result).__name__}, expected a foci.{wanted.__name__} with foci.Weights.")
        shapes = {"pool": (B, S), "pair": (B, R, S), "map": (B,)}[subject.family]
        if tuple(result.weights.shape[: len(shapes)]) != shapes:
            raise Broken(f"weights have shape {tuple(result.weights.shape)}, expected {shapes}.")
        if subject.family == "map" and tuple(result.output.shape[:2]) != (B, size["channels"]):
            raise Broken(f"the output has shape {tuple(result.output.shape)}, expected that of the features.")


def masked_positions_change_nothing(subject: Subject) -> None:
    """What a masked position holds changes neither output nor weights, and its weight is 0."""
    _needs_masks(subject)
    module, inputs = subject.make(), subject.inputs()
    before, after = (call(module, inputs.filled(number)) for number in (0.0, 1e3))
    check_same("a masked position of other content", numbers(after), numbers(before))
    weights = weights_of_result(before)
    if weights is None or weights.shape[-1] != S:
        return
    valid = inputs.valid[min(inputs.valid)]
    closed = ~valid.view(B, *(1,) * (weights.dim() - 2), S)
    if (weights.masked_select(closed.expand(weights.shape)) != 0).any():
        raise Broken("masked positions have weight, expected 0.")


def padding_may_hold_anything(subject: Subject) -> None:
    """NaN or infinity in padding changes neither results nor gradients."""
    _needs_masks(subject)
    module, inputs = subject.make(), subject.inputs()
    expected = results_and_gradients(module, inputs.filled(0.0))
    for number in (torch.nan, torch.inf):
        check_same(f"padding of {number}", results_and_gradients(module, inputs.filled(number)), expected)


def rows_without_positions_give_zeros(subject: Subject) -> None:
    """A row that may read nothing gets output 0 and weights 0, and every gradient is finite."""
    _needs_masks(subject)
    module, inputs = subject.make(), subject.inputs().leaves()
    result = call(module, inputs)
    weights = weights_of_result(result)
    for what, found in (("output", result[0]), ("weights", weights)):
        if isinstance(found, Tensor) and (found[1] != 0).any():
            raise Broken(f"a row that may read nothing has {what} other than 0.")
    check_same("gradients", found := results_and_gradients(module, inputs), found)


def alone_equals_padded(subject: Subject) -> None:
    """A row alone gives what it gives in a padded batch."""
    _needs_masks(subject)
    _refuse_samples(subject)
    module, inputs = subject.make(), subject.inputs()
    batched = numbers(call(module, inputs))
    for row in (0, 2):
        count = {place: int(valid[row].sum()) for place, valid in inputs.valid.items()}
        ways = [L, L - (S - count[1])] if subject.family == "attend" else [None]
        for queries in ways:  # a causal mask is aligned at the last key: queries are left out along with keys
            cut = {**count, 0: queries} if queries is not None else count
            alone = tuple(one[row : row + 1, : cut[place]] for place, one in enumerate(inputs.tensors))
            found = numbers(call(module, Inputs(alone, {}, {})))
            same = [whole[row : row + 1][tuple(map(slice, one.shape))] for one, whole in zip(found, batched)]
            try:
                check_same("a row alone and padded", found, same)
            except Broken:
                if queries is ways[-1]:
                    raise
            else:
                break


def weights_are_shares(subject: Subject) -> None:
    """Weights are at least 0, and those of a query sum to at most 1."""
    if subject.family not in ("attend", "pool", "pair"):
        raise NotTried("weights of its family are no shares.")
    weights = weights_of_result(call(subject.make(), subject.inputs()))
    if weights is not None and (weights < 0).any():
        raise Broken("weights are below 0.")
    if weights is not None and (weights.sum(dim=-1) > 1 + 1e-4).any():
        raise Broken(
            f"the weights of a query sum to {float(weights.detach().sum(dim=-1).max()):.3g}, expected at most 1."
        )


def gradients_are_right(subject: Subject) -> None:
    """The gradients of inputs and parameters are those of the output, in float64 (`torch.autograd.gradcheck`)."""
    _refuse_samples(subject)
    module, inputs = subject.make(torch.float64), subject.inputs(torch.float64).leaves()
    leaves = (*inputs.tensors, *module.parameters())

    def run(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(numbers(call(module, Inputs(leaves[: len(inputs.tensors)], inputs.masks, inputs.valid))))

    try:
        gradcheck(run, leaves, fast_mode=True)
    except GradcheckError as error:
        raise Broken(f"they are not those of the output: {' '.join(str(error).split())[:160]}") from error


def parameters_are_trained(subject: Subject) -> None:
    """A gradient reaches every parameter."""
    module, inputs = subject.make(training=True), subject.inputs()
    parameters = dict(module.named_parameters())
    if not parameters:
        seen = "" if isinstance(subject.part, nn.Module) else " Those of a function are not seen: make it a module."
        raise NotTried(f"it has no parameters.{seen}")
    result = call(module, inputs)
    parts = numbers(result)
    log_prob = getattr(getattr(result, "weights", None), "log_prob", None)
    generator = torch.Generator().manual_seed(3)
    loss = torch.stack(
        [(torch.randn(one.shape, generator=generator) * one).sum() for one in (*parts, log_prob) if one is not None]
    ).sum()
    if not loss.requires_grad:
        raise Broken("no gradient leaves it.")
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    unused = [name for name, gradient in zip(parameters, found) if gradient is None or not gradient.any()]
    if unused:
        raise Broken(f"no gradient reaches {', '.join(unused)}.")


def numbers_stay_finite(subject: Subject) -> None:
    """Zeros, queries that equal their keys, and large numbers give finite results and gradients."""
    module, inputs = subject.make(), subject.inputs()
    for what, change in (("zeros", torch.zeros_like), ("equal vectors", torch.ones_like), ("large numbers", _enlarged)):
        changed = Inputs(tuple(change(one) for one in inputs.tensors), inputs.masks, inputs.valid)
        for number, one in enumerate(results_and_gradients(module, changed)):
            if not one.isfinite().all():
                kind = "numbers" if number < len(numbers(call(module, changed))) else "gradients"
                raise Broken(f"of {what}, {kind} are NaN or infinite.")


def _enlarged(tensor: Tensor) -> Tensor:
    return tensor * 100


def half_precision_is_near(subject: Subject) -> None:
    """In bfloat16 the output has that dtype and is near that of float32."""
    module, inputs = subject.make(torch.bfloat16), subject.inputs(torch.bfloat16)
    output = call(module, inputs)[0]
    if output.dtype != torch.bfloat16:
        raise Broken(f"the output has dtype {output.dtype}, expected torch.bfloat16.")
    if not output.isfinite().all():
        raise Broken("numbers are NaN or infinite.")
    _refuse_samples(subject)
    same = Inputs(tuple(one.float() for one in inputs.tensors), inputs.masks, inputs.valid)
    check_same("bfloat16 and float32", [output.float()], [call(subject.make(), same)[0]], _HALF_TOLERANCE)


def nothing_is_kept(subject: Subject) -> None:
    """A call leaves attributes, parameters and buffers as they are."""
    module = subject.make(training=True)
    attributes = {path: dict(part.__dict__) for path, part in module.named_modules()}
    before = copy.deepcopy(module.state_dict())
    call(module, subject.inputs())
    for name, tensor in module.state_dict().items():
        if not torch.equal(before[name], tensor):
            raise Broken(f"a call changed {name}.")
    for path, part in module.named_modules():
        for name in {*part.__dict__, *attributes[path]}:
            if part.__dict__.get(name) is not attributes[path].get(name):
                raise Broken(f"a call changed the attribute {f'{path}.{name}'.lstrip('.')}.")


def small_sizes_work(subject: Subject) -> None:
    """There may be no query, no position, or one."""
    if subject.family not in ("attend", "pool"):
        raise NotTried("its family is not tried without positions.")
    module = subject.make()
    for queries, positions in ((L, 0), (0, S), (L, 1), (1, 1)):
        result = call(module, subject.inputs(queries=queries, positions=positions))
        if not all(one.isfinite().all() for one in numbers(result)):
            raise Broken(f"with {queries} queries and {positions} positions numbers are NaN or infinite.")


def heads_are_read_alike(subject: Subject) -> None:
    """In `foci.attend` with heads, which multi-head attention uses, each head gives what it gives alone."""
    if subject.kind not in ("score", "normalizer"):
        raise NotTried("it sees query and key before the heads are parted.")
    _refuse_samples(subject)
    part = copy.deepcopy(subject.part)
    option: dict[str, Any] = {"normalize" if subject.kind == "normalizer" else "score": part}
    query, key, value = (torch.stack([one, one.flip(1)], dim=1) for one in subject.inputs().tensors)
    mask = subject.inputs().masks["mask"]
    together = attend(query, key, value, mask, **option).output
    alone = [attend(query[:, head], key[:, head], value[:, head], mask, **option).output for head in range(2)]
    check_same("heads together and alone", [together], [torch.stack(alone, dim=1)])


def recording_sees_it(subject: Subject) -> None:
    """`foci.record` has its weights."""
    model = nn.Sequential()
    model.add_module("inner", subject.make())
    with record(model) as tape:
        result = call(model.inner, subject.inputs())  # type: ignore[arg-type]
    found = [weights for path, weights in tape.items() if path.startswith("inner")]
    weights = weights_of_result(result)
    if not found or (weights is not None and not any(torch.equal(one.dense(), weights) for one in found)):
        raise Broken("foci.record does not see its weights.")


class Numbers(nn.Module):
    """The numbers of a result, without handles: what a program returns."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tensors: tuple[Tensor, ...], masks: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return them as a tuple."""
        return tuple(numbers(self.module(*tensors, **masks)))


def exports_for_all_sizes(subject: Subject) -> None:
    """`torch.export` makes one program for all batches and lengths."""
    _refuse_samples(subject)
    wrapped = Numbers(subject.make())
    inputs, other = subject.inputs(), subject.inputs(rows=2, queries=6, positions=13)
    axes = {name: torch.export.Dim(name, max=31) for name in ("rows", "queries", "positions", "right")}
    lengths = {"attend": ("queries", "positions", "positions"), "pool": ("positions",), "pair": ("positions", "right")}
    names = lengths.get(subject.family, (None,))
    shapes = tuple({0: axes["rows"], **({1: axes[name]} if name else {})} for name in names)
    mask_axis = 2 if subject.family == "attend" else 1
    mask_names = ("positions",) if subject.family == "attend" else names
    given = {mask: {0: axes["rows"], mask_axis: axes[name]} for mask, name in zip(inputs.masks, mask_names) if name}
    with _quiet():
        program = torch.export.export(wrapped, (inputs.tensors, dict(inputs.masks)), dynamic_shapes=(shapes, given))
        found = program.module()(other.tensors, dict(other.masks))
    check_same("the program at other sizes", list(found), list(wrapped(other.tensors, dict(other.masks))))


def compiles_in_one_graph(subject: Subject) -> None:
    """`torch.compile(fullgraph=True)` gives the same results and gradients."""
    _refuse_samples(subject)
    module, inputs = subject.make(), subject.inputs()
    expected = results_and_gradients(module, inputs)
    with _quiet():
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        found = results_and_gradients(compiled, inputs)  # type: ignore[arg-type]
    check_same("compiled", found, expected)


def _needs_masks(subject: Subject) -> None:
    if not subject.takes_masks:
        raise NotTried("its family takes no mask.")


def _refuse_samples(subject: Subject) -> None:
    if subject.samples:
        raise NotTried("it samples.")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back torch's warnings and the program that a failed export prints: the report says what failed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


FIRST = Law(
    "it can be called, and returns what its family returns",
    returns_a_result,
    "docs/design.md has the call and the result of each family.",
)
"""The law without which no other can be tried."""

_CLEAR = "Clear key and value where nobody may read them, key.masked_fill(…, 0): 0 · NaN is NaN."

LAWS = (
    Law(
        "masked positions change nothing, and have weight 0",
        masked_positions_change_nothing,
        "Put scores to -inf where the mask is False before a softmax, or set the weights to 0.",
    ),
    Law("padding may hold anything, NaN included", padding_may_hold_anything, _CLEAR),
    Law(
        "rows that may read nothing give 0, with finite gradients",
        rows_without_positions_give_zeros,
        "foci.masks.masked_softmax has such rows; set their output to 0 after the last bias.",
    ),
    Law(
        "a row alone gives what it gives in a padded batch",
        alone_equals_padded,
        "Count positions of the mask, mask.sum(-1), not those of the tensor, and take no mean over padding.",
    ),
    Law("weights are shares of 1", weights_are_shares, "Divide them by their sum."),
    Law(
        "gradients are right (gradcheck in float64)",
        gradients_are_right,
        "Look for detach(), .data, .item(), numpy, and changes in place.",
    ),
    Law(
        "every parameter is trained",
        parameters_are_trained,
        "Use it in forward, or remove it; what is not trained is a buffer.",
    ),
    Law(
        "zeros, equal vectors and large numbers stay finite",
        numbers_stay_finite,
        "Subtract the largest score before exp, and add a small number in sqrt, log and before a division by a norm.",
    ),
    Law(
        "bfloat16 is near float32",
        half_precision_is_near,
        "Make tensors with query.new_zeros(…) or dtype=query.dtype; sum in float32.",
    ),
    Law("a call keeps nothing on the module", nothing_is_kept, "Pass state in and return it."),
    Law("no query, no position, or one of them", small_sizes_work, "Return zeros where there is nothing to read."),
    Law(
        "heads are read as without heads",
        heads_are_read_alike,
        "Count axes from the end: the last is the feature, the one before it the position.",
    ),
    Law("foci.record sees its weights", recording_sees_it, "Return foci.Weights.from_tensor(weights)."),
    Law(
        "torch.export makes one program for all sizes",
        exports_for_all_sizes,
        "Do not turn sizes or numbers of tensors into Python numbers, nor branch on them.",
    ),
)

COMPILED = Law(
    "torch.compile makes one graph of it",
    compiles_in_one_graph,
    "Call nothing but torch: no .item(), no numpy, no print.",
)
"""The law that takes longest, tried on request."""
