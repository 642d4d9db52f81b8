"""Muon for the matrices of linear layers, AdamW for everything else, as one optimizer.

    M ← μ M + (1 − μ) G,   O = NewtonSchulz((1 − μ) G + μ M) ≈ U Vᵀ of its singular value decomposition
    W ← W − η (0.2 √max(rows, columns) O + λ W)

Every direction of a matrix moves by the same amount. The factor 0.2 √max(rows, columns) gives an update the root mean
square that Adam's usually has, so that one learning rate serves both. Both are torch's own optimizers.

Paper: Muon: An optimizer for hidden layers in neural networks (Jordan et al., 2024); Muon is Scalable for LLM Training
    (Liu et al., 2025), section 2.2
Names: μ = momentum, η = lr, λ = weight_decay, M = momentum_buffer
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from foci.errors import ConfigError


class MuonWithAdamW(torch.optim.Optimizer):
    """`torch.optim.Muon` for groups with ``kind`` "muon", `torch.optim.AdamW` for those with "adam".

    Args:
        groups: parameter groups, each with ``kind``, ``weight_decay`` and any further entries.
        lr: the learning rate.
        momentum: μ.
        betas, eps: of AdamW.
        fused: whether AdamW steps all parameters by one kernel.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        *,
        lr: float,
        momentum: float,
        betas: tuple[float, float],
        eps: float,
        fused: bool,
    ) -> None:
        if any(hasattr(one, "full_tensor") for group in groups for one in group["params"]):
            raise ConfigError("Muon: the parameters are sharded, expected whole matrices. Use strategy ddp.")
        kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "muon": lambda those: torch.optim.Muon(those, lr, momentum=momentum, adjust_lr_fn="match_rms_adamw"),
            "adam": lambda those: torch.optim.AdamW(those, lr, betas, eps, fused=fused),
        }
        of_kind = {kind: [group for group in groups if group["kind"] == kind] for kind in kinds}
        self._inner = {kind: kinds[kind](those) for kind, those in of_kind.items() if those}
        super().__init__(groups, {})
        self._share_state()

    def _share_state(self) -> None:
        """Let the inner optimizers work on the groups and the state of this one."""
        for kind, optimizer in self._inner.items():
            optimizer.param_groups = [group for group in self.param_groups if group["kind"] == kind]
            optimizer.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state."""
        super().load_state_dict(state_dict)
        self._share_state()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for optimizer in self._inner.values():
            optimizer.step()
        return loss
