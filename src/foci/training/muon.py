"""Muon for the matrices of linear layers, Adam for everything else.

    M ← μ M + G,   O = NewtonSchulz(G + μ M) ≈ U Vᵀ of its singular value decomposition
    W ← W − η (0.2 √max(rows, columns) O + λ W)

Every direction of a matrix moves by the same amount. The factor 0.2 √max(rows, columns) gives an update the root mean
square that Adam's usually has, so that one learning rate serves both.

Paper: Muon: An optimizer for hidden layers in neural networks (Jordan et al., 2024); Muon is Scalable for LLM Training
    (Liu et al., 2025), section 2.2
Names: μ = momentum, η = lr, λ = weight_decay, M = momentum_buffer
Complexity: O(steps · rows² · columns) per matrix, rows ≤ columns
Differs: matrices of one shape are orthogonalised together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.errors import ConfigError

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Jordan's: they bring singular values between 0.7 and 1.2 in five steps, and small ones up fastest."""
_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Muon for groups with ``kind`` "muon", AdamW for those with "adam".

    Args:
        groups: parameter groups, each with ``kind``, ``weight_decay`` and any further entries.
        lr: the learning rate.
        momentum: μ.
        betas, eps: of Adam.
        precision: in which updates are orthogonalised; that of the weights unless given. bfloat16 is enough.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        precision: torch.dtype | None = None,
    ) -> None:
        groups = list(groups)
        self._precision = precision
        super().__init__(groups, {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps})
        for group in self.param_groups:
            wrong = [tuple(one.shape) for one in group["params"] if one.dim() != 2]
            if group["kind"] == "muon" and wrong:
                raise ConfigError(f"Muon: a parameter has shape {wrong[0]}, expected matrices. Let Adam step it.")
            if any(hasattr(one, "full_tensor") for one in group["params"]):
                raise ConfigError("Muon: the parameters are sharded, expected whole matrices. Use strategy ddp.")
        self._adam = torch.optim.AdamW([{"params": [nn.Parameter(torch.zeros(1))]}])
        self._share_state()

    def _share_state(self) -> None:
        """Let the inner Adam work on the groups and the state of this optimizer."""
        fused = all(one.device.type in ("cpu", "cuda") for group in self.param_groups for one in group["params"])
        for group in self.param_groups:
            if group["kind"] == "adam":
                for name, value in self._adam.defaults.items():
                    group.setdefault(name, value)
                group["fused"] = fused
        self._adam.param_groups = [group for group in self.param_groups if group["kind"] == "adam"]
        self._adam.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state."""
        super().load_state_dict(state_dict)
        self._share_state()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        self._adam.step()
        for group in self.param_groups:
            if group["kind"] == "muon":
                self._step_matrices(group)
        return loss

    def _step_matrices(self, group: dict[str, Any]) -> None:
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                by_shape.setdefault(parameter.shape, []).append(parameter)
        for shape, parameters in by_shape.items():
            buffers = []
            for parameter in parameters:
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                buffers.append(state["momentum_buffer"])
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._foreach_mul_(buffers, group["momentum"])
            torch._foreach_add_(buffers, gradients)
            ahead = torch._foreach_add(gradients, buffers, alpha=group["momentum"])
            stacked = torch.stack(list(ahead))
            updates = orthogonalised(stacked.to(self._precision or stacked.dtype)).to(stacked.dtype).unbind()
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, list(updates), alpha=-group["lr"] * 0.2 * max(shape) ** 0.5)


def orthogonalised(matrices: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Return about U Vᵀ of the singular value decomposition of each matrix, by five Newton-Schulz steps.

    Example:
        >>> found = orthogonalised(torch.diag(torch.tensor([3.0, 0.5])).unsqueeze(0))
        >>> bool(((found[0].diagonal() > 0.6) & (found[0].diagonal() < 1.3)).all())
        True
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        square = torch.bmm(x, x.transpose(1, 2))
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.transpose(1, 2) if tall else x
