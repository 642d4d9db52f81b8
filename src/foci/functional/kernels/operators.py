"""Functions of foci as operators of torch: autograd in eager mode, one node for tracers, and a form without foci.

`decompositions` goes to ``ExportedProgram.run_decompositions``; `torch.onnx.export` takes the program that comes back.
Sizes that were exported as dynamic stay dynamic. Torch's own table of decompositions does not have them: where the
environment variable CI is set, inductor refuses to call an operator that it finds there.

The plain form gives the same numbers to rounding, without what the kernel saves: additive scores build the B×L×S×A
tensor, and windows in long sequences are masks of L×S.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from foci.functional.kernels.gradients import differentiate, plain_gradients
from foci.functional.kernels.kernel import wants_gradients
from foci.tracing import is_traced

Grads = Sequence[Tensor | None]
Gradients = Callable[[Grads, Sequence[Any], Sequence[Tensor], Sequence[bool]], Grads | None]
"""``(grads of the results, arguments, kept results, which are wanted) -> gradients of the inputs``, or None."""

_PLAIN: dict[torch._ops.OpOverload, Callable[..., Any]] = {}


def register(name: str, schema: str, compute: Callable[..., Any], like: Callable[..., Any], plain: Any) -> Any:
    """Register ``foci::name``, and return it.

    Args:
        name: of the operator.
        schema: its arguments and results, as torch writes them.
        compute: returns the results: contiguous, and without memory that they share.
        like: returns empty results for tracers.
        plain: computes the same in plain torch operators, without operations in place.
    """
    operator = torch.library.custom_op(f"foci::{name}", compute, mutates_args=(), schema=schema)
    operator.register_fake(like)
    _PLAIN[getattr(torch.ops.foci, name).default] = plain
    return operator


def compiled_or_plain(
    library: Callable[..., ctypes.CDLL | None], compiled: Callable[..., Any], plain: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that calls ``compiled(library, …)`` where there is a library for its arguments, else ``plain``.

    A traced graph may be called with other arguments than it was traced with.
    """

    def compute(*arguments: Any) -> Any:
        found = library(*arguments)
        return plain(*arguments) if found is None else compiled(found, *arguments)

    return compute


def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Return torch's default table of decompositions, with those of foci's operators.

    Returns:
        A table for ``ExportedProgram.run_decompositions``. The program that comes back has no operator of foci.

    Example:
        >>> import torch, foci
        >>> attention = foci.build("additive", query_dim=3, key_dim=5, hidden_dim=7)
        >>> program = torch.export.export(attention, (torch.zeros(2, 4, 3), torch.zeros(2, 6, 5)))
        >>> program = program.run_decompositions(foci.decompositions())
        >>> any("foci" in str(node.target) for node in program.graph.nodes)
        False
    """
    table = torch.export.default_decompositions()
    table.update(_PLAIN)
    return table


class Operator:
    """A function with gradients as the operators ``foci::name`` and ``foci::name_backward``.

    Args:
        name: of the operator.
        arguments: their schema: first the inputs, which have gradients, then other tensors, then numbers.
        inputs: number of inputs.
        results: number of results.
        differentiable: number of results that have gradients, the first ones. Default: all.
        kept: the results that the gradients are computed from. Default: none.
        compute: returns the results, contiguous.
        gradients: returns the gradients, contiguous. Default, and where it returns None: those of the plain form.
        accepts: returns whether ``gradients`` can be used for arguments that do not come from ``compute``, which the
            backward operator may be called with. Default: always.
        plain: computes the same in plain torch operators; also where the gradients are differentiated themselves.
        like: returns empty results for tracers.
    """

    def __init__(
        self,
        name: str,
        arguments: str,
        *,
        inputs: int,
        results: int = 1,
        differentiable: int | None = None,
        kept: slice = slice(0),
        compute: Callable[..., Any],
        gradients: Gradients | None = None,
        accepts: Callable[[Grads, Sequence[Any], Sequence[Tensor]], bool] | None = None,
        plain: Callable[..., Any],
        like: Callable[..., Any],
    ) -> None:
        self._inputs, self._tensors = inputs, arguments.count("Tensor")
        self._arguments = arguments.count(",") + 1
        self._outputs = results if differentiable is None else differentiable
        self._kept, self._accepts = kept, accepts
        self._compute, self._fast, self._plain = compute, gradients, plain
        self._operator = register(name, f"({arguments}) -> {_tensors(results)}", compute, like, plain)
        grads = [f"Tensor? grad_{number}" for number in range(self._outputs)]
        saved = [f"Tensor kept_{number}" for number in range(results)[kept]]
        self._backward_operator = register(
            f"{name}_backward",
            f"({', '.join([*grads, arguments, *saved])}) -> {_tensors(inputs)}",
            self._backward_of_any,
            lambda *given: tuple(one.new_empty(one.shape) for one in self._split(given)[1][:inputs]),
            lambda *given: self._plain_gradients(*self._split(given)[:2]),
        )
        self._operator.register_autograd(self._backward, setup_context=self._keep)
        self._function = _eager(self)

    def __call__(self, *arguments: Any) -> Any:
        """Compute the results: as an operator where a tracer looks on, else with less overhead."""
        if is_traced():
            return self.traced(*arguments)
        if wants_gradients(*arguments[: self._inputs]):
            return self._function.apply(*arguments)
        return self._compute(*arguments)

    def traced(self, *arguments: Any) -> Any:
        """Compute the results by the operator."""
        return self._operator(*arguments)

    def _split(self, given: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Split the arguments of the backward operator into grads, arguments, and kept results."""
        first, last = self._outputs, self._outputs + self._arguments
        return given[:first], given[first:last], given[last:]

    def _of_inputs(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        """Return the plain form as a function of the inputs alone."""
        return lambda *inputs: self._plain(*inputs, *arguments[self._inputs :])

    def _backward_of_any(self, *given: Any) -> tuple[Tensor | None, ...]:
        grads, arguments, kept = self._split(given)
        if self._accepts is not None and not self._accepts(grads, arguments, kept):
            return tuple(self._plain_gradients(grads, arguments))
        return tuple(self._gradients(grads, arguments, kept, (True,) * self._inputs))

    def _gradients(
        self, grads: Grads, arguments: Sequence[Any], kept: Sequence[Tensor], wanted: Sequence[bool]
    ) -> Grads:
        found = None if self._fast is None else self._fast(grads, arguments, kept, wanted)
        return self._plain_gradients(grads, arguments) if found is None else found

    def _plain_gradients(self, grads: Grads, arguments: Sequence[Any]) -> Grads:
        return plain_gradients(self._of_inputs(arguments), arguments[: self._inputs], grads)

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if type(output) is tuple else (output,)
        ctx.save_for_backward(*inputs[: self._tensors], *results[self._kept])
        ctx.numbers = inputs[self._tensors :]
        if len(results) > self._outputs:
            ctx.mark_non_differentiable(*results[self._outputs :])
        ctx.set_materialize_grads(False)  # otherwise torch allocates zeros for results without a gradient

    def _backward(self, ctx: Any, *all_grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grads, nothing = all_grads[: self._outputs], (None,) * self._arguments
        if all(grad is None for grad in grads):  # zeros, by torch's convention
            return nothing
        saved = ctx.saved_tensors
        arguments, kept = (*saved[: self._tensors], *ctx.numbers), saved[self._tensors :]
        found: Grads
        if torch.is_grad_enabled():  # create_graph=True: the gradients themselves are differentiated
            found = differentiate(self._of_inputs(arguments), saved[: self._inputs], grads, create_graph=True)
        elif is_traced():
            found = self._backward_operator(*grads, *arguments, *kept)
        else:
            found = self._gradients(grads, arguments, kept, ctx.needs_input_grad)
        return *found, *nothing[self._inputs :]


def _eager(operator: Operator) -> type[torch.autograd.Function]:
    """Return the operator as a function of autograd, whose overhead is less, which matters for short steps."""

    class Eager(torch.autograd.Function):
        # Not setup_context: torch would inspect forward's signature at every call, which costs more than a short step.
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            results = operator._compute(*arguments)
            operator._keep(ctx, arguments, results)
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            return operator._backward(ctx, *grads)

    return Eager


def _tensors(count: int) -> str:
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
