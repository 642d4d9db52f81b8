"""Handles that are copied, pickled, saved or sent to another process keep their exact weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor


class Copied:
    """The base of handles and sources: a copy has tensors of its own, which are not part of a graph.

    A copy is complete: what is changed in place afterwards, on either side, does not reach the other, also where
    processes share memory. Of a handle whose tensors were changed in place there is no copy. ``copy.copy`` shares all.
    """

    def check_unchanged(self) -> None:
        """Raise `StaleWeightsError` if a tensor that the weights are computed from was changed in place."""
        raise NotImplementedError

    def renew_versions(self) -> None:
        """Record the current state of the tensors as the unchanged one."""
        raise NotImplementedError

    def __copy__(self) -> Copied:
        shallow = object.__new__(type(self))
        vars(shallow).update(vars(self))
        return shallow

    def __getstate__(self) -> dict[str, Any]:
        self.check_unchanged()
        return {name: part.detach().clone() if isinstance(part, Tensor) else part for name, part in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.renew_versions()
