"""How parts of an input are erased: tokens where a model embeds them, regions and frames in the numbers it is given.

    Embedded        the vector of an erased token is a neutral one, at each embedding that reads its id
    Cells           the elements of an erased part, such as the pixels of a region, have neutral values

The length of the input and all positions stay. An eraser of one's own is any object with the methods of `Eraser`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.errors import ConfigError

Place = int | str
"""An argument of a model: a number or a name."""
Inputs = Mapping[Place, Any]


class Values(NamedTuple):
    """Numbers that parts consist of, to differentiate by.

    Attributes:
        leaf: the numbers that the model reads.
        measured: what gradients are multiplied by: the numbers, measured from where they count nothing.
        owner: which part each of them belongs to, −1 for none; it broadcasts to them.
    """

    leaf: Tensor
    measured: Tensor
    owner: Tensor


class Reading(NamedTuple):
    """What a model is called with while parts are erased, and after its call the numbers of all parts."""

    inputs: Inputs
    values: list[Values]


class Eraser(Protocol):
    """How parts of one argument of a model are erased."""

    def count(self, value: Tensor) -> int:
        """Return how many parts the argument has."""

    def erased(
        self, model: nn.Module, inputs: Inputs, place: Place, sets: Sequence[Collection[int]], *, differentiate: bool
    ) -> AbstractContextManager[Reading]:
        """Within the block a call of the model has a row for each set, without the parts of that set.

        Args:
            model: which is called in the block.
            inputs: its arguments for the whole input, with a batch axis of 1.
            place: the argument.
            sets: what is erased in each row.
            differentiate: keep the numbers of the parts; there is one set then, which is empty.
        """


@dataclass(frozen=True)
class Embedded:
    """Tokens, which are erased at the embeddings that read their ids ``(1, S)``.

    An embedding is found by the ids it is given: those of the input, in their order, perhaps without padding and in
    other rows, as a document is read by sentences.

    Args:
        neutral: the id whose vector takes the place of an erased one's, such as that of a mask token. Default: the
            mean of all vectors.
    """

    neutral: int | None = None

    def count(self, value: Tensor) -> int:
        """Return the number of ids."""
        return value.numel()

    @contextmanager
    def erased(
        self, model: nn.Module, inputs: Inputs, place: Place, sets: Sequence[Collection[int]], *, differentiate: bool
    ) -> Iterator[Reading]:
        """See `Eraser`."""
        ids = inputs[place].flatten()
        seen: set[nn.Module] = set()
        values: list[Values] = []

        def erase(module: nn.Embedding, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
            places = None if module in seen or not args else _places(module, args[0], ids, len(sets))
            if places is None:
                return None
            seen.add(module)
            flat = output.reshape(-1, output.shape[-1])
            if differentiate:
                leaf = flat[places].detach().requires_grad_()
                values.append(Values(leaf, leaf.detach(), torch.arange(len(ids), device=leaf.device).unsqueeze(1)))
                return flat.detach().index_copy(0, places, leaf).reshape(output.shape)
            rows = [number * len(ids) + one for number, gone in enumerate(sets) for one in gone]
            neutral = self._neutral(module).to(flat.dtype)
            return flat.index_put((places[torch.tensor(rows, dtype=torch.long)],), neutral).reshape(output.shape)

        embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
        hooks = [module.register_forward_hook(erase) for module in embeddings]
        try:
            yield Reading(inputs, values)
        finally:
            for hook in hooks:
                hook.remove()
        if not seen:
            raise ConfigError(
                f"probe: no torch.nn.Embedding of {type(model).__name__} reads the tokens of {place!r}, so they cannot "
                "be erased. Name the input that has the ids of the tokens."
            )

    def _neutral(self, module: nn.Embedding) -> Float[Tensor, " D"]:
        weight = module.weight.detach()
        return weight.mean(dim=0) if self.neutral is None else weight[self.neutral]


def _places(module: nn.Embedding, given: Any, ids: Tensor, copies: int) -> Tensor | None:
    """Return where the ids stand among those of a call, flattened; None if it reads others."""
    if not isinstance(given, Tensor) or given.is_floating_point():
        return None
    given, wanted = given.flatten(), ids.clamp_max(module.num_embeddings - 1).repeat(copies)
    places = torch.arange(len(given), device=given.device)
    if given.shape != wanted.shape:
        places = places[given != (module.padding_idx or 0)]
    return places if len(places) == len(wanted) and torch.equal(given[places], wanted) else None


@dataclass(frozen=True, eq=False)
class Cells:
    """Parts of an argument of numbers ``(1, …)``: regions of an image, stretches of a recording, vectors of words.

    Gradients are multiplied by what the numbers differ by from the neutral ones, since a pixel of 0 is a gray one.

    Args:
        owner: which part each element belongs to, −1 for none; it broadcasts to the argument.
        neutral: the values of what is erased; they broadcast to the argument.

    Example:
        >>> pixels, owner = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0, 0, 1]])
        >>> cells = Cells(owner, neutral=torch.tensor(9.0))
        >>> with cells.erased(nn.Identity(), {0: pixels}, 0, [(), (0,)], differentiate=False) as reading:
        ...     reading.inputs[0].tolist()
        [[1.0, 2.0, 3.0], [9.0, 9.0, 3.0]]
    """

    owner: Tensor
    neutral: Tensor

    @classmethod
    def with_mean(cls, value: Tensor, owner: Tensor) -> Cells:
        """Return parts whose neutral values are the mean of this very input, over the axes that the owners lie along.

        The mean of an image is a color, that of a recording a constant sound: it tells nothing of places, is always
        known, and stands out less than a black or a silent part.

        Example:
            >>> Cells.with_mean(torch.tensor([[[1.0, 7.0], [3.0, 9.0]]]), torch.tensor([[[0], [1]]])).neutral.tolist()
            [[[2.0, 8.0]]]
        """
        along = [axis for axis, size in enumerate(owner.shape) if size > 1] or [1]
        return cls(owner, value.detach().float().mean(dim=along, keepdim=True))

    @classmethod
    def of_regions(cls, pixels: Float[Tensor, "1 C H W"], grid: tuple[int, int], first: int = 0) -> Cells:
        """Return the regions of an image, row by row.

        Args:
            pixels: the image.
            grid: how many regions there are down and across.
            first: the number of the first region, where other tokens come before them.

        Example:
            >>> Cells.of_regions(torch.zeros(1, 3, 2, 4), (1, 2)).owner.tolist()
            [[[[0, 0, 1, 1], [0, 0, 1, 1]]]]
        """
        (_, _, height, width), (down, across) = pixels.shape, grid
        row = torch.arange(height, device=pixels.device) * down // height
        column = torch.arange(width, device=pixels.device) * across // width
        return cls.with_mean(pixels, first + (row.unsqueeze(1) * across + column)[None, None])

    def count(self, value: Tensor) -> int:
        """Return the number of parts."""
        return int(self.owner.max()) + 1

    @contextmanager
    def erased(
        self, model: nn.Module, inputs: Inputs, place: Place, sets: Sequence[Collection[int]], *, differentiate: bool
    ) -> Iterator[Reading]:
        """See `Eraser`."""
        value: Tensor = inputs[place]
        if differentiate:
            leaf = value.detach().clone().requires_grad_()
            yield Reading({**inputs, place: leaf}, [Values(leaf, leaf.detach() - self.neutral, self.owner)])
            return
        gone = torch.zeros(len(sets), self.count(value) + 1, dtype=torch.bool, device=value.device)
        for row, parts in enumerate(sets):
            gone[row, list(parts)] = True
        where = gone[:, self.owner.squeeze(0)]  # −1 is the last column, which is never erased
        yield Reading({**inputs, place: torch.where(where, self.neutral.to(value.dtype), value)}, [])
