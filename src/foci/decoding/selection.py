"""Choose, repeat, reorder or drop the rows of any decoder's state."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Int
from torch import Tensor

Tree = TypeVar("Tree")


@runtime_checkable
class Selectable(Protocol):
    """A part of a state with a cheaper way than copying rows, such as the `TreeCache` of `foci.layers.incremental`."""

    def select(self, index: Int[Tensor, " N"]) -> Any:
        """Return these rows, in this order."""


def select(tree: Tree, index: Int[Tensor, " N"]) -> Tree:
    """Return the rows ``index`` of every tensor in a tree of tuples, named tuples, lists and dicts.

    Anything that is neither a tensor, nor a container, nor has a ``select`` of its own is shared by all rows.

    Example:
        >>> import torch
        >>> select({"a": torch.tensor([3, 5, 7]), "b": None}, torch.tensor([2, 0, 0]))
        {'a': tensor([7, 3, 3]), 'b': None}
    """
    chosen: Any
    if isinstance(tree, Tensor):  # first: Tensor.select is another operation
        chosen = tree.index_select(0, index)
    elif isinstance(tree, tuple):
        parts = [select(part, index) for part in tree]
        chosen = type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    elif isinstance(tree, list):
        chosen = [select(part, index) for part in tree]
    elif isinstance(tree, dict):
        chosen = {name: select(part, index) for name, part in tree.items()}
    elif isinstance(tree, Selectable):
        chosen = tree.select(index)
    else:
        chosen = tree
    return chosen  # type: ignore[no-any-return]
