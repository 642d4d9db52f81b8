"""Rows of any decoder's state."""

import torch

from foci.decoding import select


def test_select_over_a_tree() -> None:
    class Own:
        def select(self, index: torch.Tensor) -> str:
            return f"own {index.tolist()}"

    index = torch.tensor([1, 1, 0])
    tree = (torch.tensor([5, 7]), [{"a": torch.tensor([[1], [2]])}, None, 3], Own())
    numbers, rest, own = select(tree, index)
    assert numbers.tolist() == [7, 7, 5]
    assert rest[0]["a"].tolist() == [[2], [2], [1]]  # type: ignore[index]
    assert rest[1:] == [None, 3]
    assert own == "own [1, 1, 0]"
