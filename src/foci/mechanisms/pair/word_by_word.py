"""Word-by-word attention: each word of a hypothesis attends to the premise, given what earlier words attended to.

    M_t = tanh(W^y Y + W^h h_t + W^r r_{t−1})
    α_t = softmax(wᵀ M_t)
    r_t = Y α_tᵀ + tanh(W^t r_{t−1})
    h*  = tanh(W^p r_N + W^x h_N)

Paper: Reasoning about Entailment with Neural Attention (Rocktäschel et al., 2016), section 2.4, arXiv:1509.06664
Names: Y = left, h = right, W^y = score_left, W^h = score_right, W^r = score_memory, w = vector, α = weights,
    r = memory, W^t = carry, W^p = from_memory, W^x = from_right, h* = output
Complexity: O(R·S·D) time in R sequential steps, and (R + S)·D² for the projections.
Differs: r_0, which the paper leaves open, is 0. N is the last word of each row's own hypothesis. An empty
    premise or hypothesis gives output 0; the equations would give tanh(W^x h_N) for an empty premise alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import refuse_script
from foci.errors import check_sizes
from foci.functional.stepwise import over_steps
from foci.mechanisms.pair.inputs import check_pair
from foci.outputs import AttentionOutput, PairOutput, called_as
from foci.recording.rereading import Reread
from foci.recording.watching import editable
from foci.tracing import Tensors, known_true
from foci.weights import Weights


def _reread(memory: Tensor, query: Tensor, exists: Tensor, shared: Tensors) -> Reread:
    """Return how the words of the hypothesis read, one after the other, for `foci.edit`."""
    value, key, valid, *parameters = shared

    def read(weights: Tensor) -> Tensor:
        new = weights @ value + torch.tanh(F.linear(memory, parameters[-1]))
        return torch.where(exists.unsqueeze(2), new, memory)

    def step(row: int, previous: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensors]:
        at = slice(row, row + 1)
        return memory if previous is None else previous, query[:, at], exists[:, at], shared

    def limited(open: Tensor) -> AttentionOutput:
        return _read_words(memory, query, exists, (value, key, valid & open.squeeze(1), *parameters))

    return Reread(
        read,
        lambda: exists.unsqueeze(2) & valid.unsqueeze(1),
        limited,
        next_state=lambda weights, output: output,
        step=step,
    )


@editable(_reread)
def _read_words(memory: Tensor, query: Tensor, exists: Tensor, shared: Tensors) -> AttentionOutput:
    """Return what is remembered after the last word, and the weights of all words."""
    memory, (weights,) = over_steps("word_by_word", memory, (query, exists), shared)
    return AttentionOutput(memory, Weights.from_tensor(weights), memory)


class WordByWord(nn.Module):
    """A premise and a hypothesis as one vector, to classify whether the premise entails the hypothesis.

    Call it with the encoded premise ``left (B, S, D)``, the encoded hypothesis ``right (B, R, D)`` and, for
    padding, ``left_mask (B, S)`` and ``right_mask (B, R)`` (True = a real word). The output is ``(B, D)``;
    ``weights (B, R, S)`` are the weights of each hypothesis word over the premise. A padded hypothesis word has
    weights 0 and no effect. Where either side is empty, output and weights are zeros.

    Args:
        model_dim: the size D of both sequences.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> match = WordByWord(3)
        >>> matched = match(torch.ones(1, 4, 3), torch.randn(1, 2, 3))
        >>> matched.output.shape, matched.weights.dense().tolist()
        (torch.Size([1, 3]), [[[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]])
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        check_sizes("WordByWord", model_dim=model_dim)
        self.model_dim = model_dim
        self.score_left = nn.Linear(model_dim, model_dim, bias=False)
        self.score_right = nn.Linear(model_dim, model_dim, bias=False)
        self.score_memory = nn.Linear(model_dim, model_dim, bias=False)
        self.vector = nn.Parameter(torch.empty(model_dim))
        self.carry = nn.Linear(model_dim, model_dim, bias=False)
        self.from_memory = nn.Linear(model_dim, model_dim, bias=False)
        self.from_right = nn.Linear(model_dim, model_dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters; the score's vector like a row of `torch.nn.Linear`."""
        for child in self.children():
            child.reset_parameters()  # type: ignore[operator]
        bound = 1.0 / math.sqrt(self.model_dim)
        nn.init.uniform_(self.vector, -bound, bound)

    def forward(
        self,
        left: Float[Tensor, "B S D"],
        right: Float[Tensor, "B R D"],
        left_mask: Bool[Tensor, "B S"] | None = None,
        right_mask: Bool[Tensor, "B R"] | None = None,
    ) -> PairOutput:
        """Attend to the premise ``left`` with every word of the hypothesis ``right``, in order."""
        left, right, left_valid, right_valid = check_pair(
            "WordByWord", left, right, left_mask, right_mask, size=self.model_dim
        )
        key, query = self.score_left(left), self.score_right(right)

        memory = right.new_zeros(right.shape[0], 1, right.shape[2])
        if known_true(right.shape[1] == 0):  # a hypothesis of no words has weights too
            last_word, weights = memory, right.new_zeros(right.shape[0], 0, left.shape[1])
        else:
            shared = (left, key, left_valid, self.vector, self.score_memory.weight, self.carry.weight)
            read = _read_words(memory, query, right_valid, shared)
            memory, weights = read.state, read.weights.dense()
            positions = torch.arange(right.shape[1], device=right.device)
            last = (positions * right_valid).amax(dim=1).view(-1, 1, 1)
            last_word = right.gather(1, last.expand(-1, 1, right.shape[2]))
        output = torch.tanh(self.from_memory(memory) + self.from_right(last_word)).squeeze(1)
        read_something = left_valid.any(dim=1) & right_valid.any(dim=1)
        output = output.masked_fill(~read_something.unsqueeze(1), 0.0)
        return PairOutput(output, Weights.from_tensor(weights))

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""
