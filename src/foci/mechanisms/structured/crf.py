"""Linear-chain conditional random field: weights are the marginals of the tags, given transitions between steps.

    s(y)       = b[y_1] + Σ_t P[t, y_t] + Σ_t A[y_t, y_t+1] + e[y_T]
    p(y)       = exp(s(y)) / Z,          Z = Σ_y' exp(s(y'))
    α_t+1(j)   = Σ_i α_t(i) exp(P[t, i] + A[i, j]),            α_1 = exp(b)
    β_t-1(i)   = Σ_j exp(A[i, j] + P[t, j]) β_t(j),            β_T = exp(e)
    p(y_t = j) = α_t(j) exp(P[t, j]) β_t(j) / Z

Paper: Conditional Random Fields (Lafferty, McCallum, Pereira, 2001), section 3, doi:10.5555/645530.655813; scores
    from a network: Neural Architectures for Named Entity Recognition (Lample et al., 2016), section 2.2,
    arXiv:1603.01360; marginals as attention: Structured Attention Networks (Kim et al., 2017), arXiv:1702.00887; the
    k best: List Viterbi Decoding Algorithms with Applications
    (Seshadri, Sundberg, 1994)
Names: P = value (emissions), A = transitions, b = start, e = end, p = weights, y = tags
Complexity: O(T·K²) time in T sequential steps; O(T·K²) memory while training, O(T·K) otherwise.
    The k best sequences take O(k·T·K²) time, O(k·T·K) memory.
Differs: as attention, the weights (B, T, K) of each step are the probabilities of its K tags, and the output
    (B, K) is their sum over the steps, the expected number of steps per tag. b and e are separate vectors;
    the papers add a start and a stop tag to A. α and β leave out the step's own emission, and are
    kept as logs. Masked steps are skipped at any position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci.checks import check_boolean, check_shape, check_together, check_valid, refuse_script
from foci.errors import ConfigError, ShapeError, check_sizes, unknown_name
from foci.functional import crf
from foci.masks import clear_unreadable
from foci.outputs import AttentionOutput, called_as
from foci.recording.rereading import Reread
from foci.recording.watching import editable
from foci.weights import Weights


class Constraints(NamedTuple):
    """Which tags may follow which ``(K, K)``, start a sequence ``(K,)`` and end one ``(K,)``."""

    allowed_transitions: Tensor
    allowed_start: Tensor
    allowed_end: Tensor


class _Scheme(NamedTuple):
    """What the prefixes of a chunking scheme mean."""

    prefixes: str
    inside: str
    """Prefixes that continue a chunk of the same type."""
    continuable: str
    """Prefixes a chunk may continue after."""
    unfinished: str
    """Prefixes a chunk must continue after."""


_SCHEMES = {
    "BIO": _Scheme(prefixes="BIO", inside="I", continuable="BI", unfinished=""),
    "BIOES": _Scheme(prefixes="BIOES", inside="IE", continuable="BI", unfinished="BI"),
}


def _reread(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, mask: Tensor | None) -> Reread:
    """Return what marginals are read for, for `foci.edit`."""
    chain = (transitions, start, end)

    def find_open() -> Tensor:
        """Return the tags that some sequence of finite score has at each step."""
        chances = [score.masked_fill(score > -torch.inf, 0.0) for score in (emissions, *chain)]
        return crf.marginals(chances[0], chances[1], chances[2], chances[3], mask) > 0.0

    def limited(open: Tensor) -> AttentionOutput:
        """Return the marginals where the other tags are forbidden; a step without a tag is skipped, as a masked one."""
        exists = open.any(dim=-1)
        exists = exists if mask is None else exists & mask
        return _expect(emissions.masked_fill(~open, -torch.inf), *chain, exists)

    return Reread(lambda weights: weights.sum(dim=1), find_open, limited)


@editable(_reread)
def _expect(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, mask: Tensor | None) -> AttentionOutput:
    """Return the expected number of steps of each tag, and the probability of each tag at each step."""
    weights = crf.marginals(emissions, transitions, start, end, mask)
    return AttentionOutput(weights.sum(dim=1), Weights.from_tensor(weights))


class CRF(nn.Module):
    """Tags a sequence as a whole: the score of a tag depends on its neighbors.

    Call it like a pool, with ``value (B, T, K)``, one score for each step and tag, and ``mask (B, T)`` (True:
    the step exists; any pattern). The weights ``(B, T, K)`` are the probability of each tag at each step, the
    output ``(B, K)`` the expected number of steps per tag. To train, maximize `log_likelihood`; to tag,
    use `viterbi`.

    Args:
        num_tags: the number K of tags.
        allowed_transitions: boolean ``(K, K)``, True where the row's tag may be followed by the column's.
        allowed_start: boolean ``(K,)``, which tags may start a sequence.
        allowed_end: boolean ``(K,)``, which tags may end one.

    `constraints` derives the three from the names of tags.

    Example:
        >>> import torch
        >>> names = ["O", "B-PER", "I-PER"]
        >>> crf = CRF(len(names), **constraints(names)._asdict())
        >>> emissions = torch.tensor([[[0.0, 0.0, 9.0], [0.0, 0.0, 9.0], [5.0, 0.0, 0.0]]])
        >>> tags, scores = crf.viterbi(emissions)
        >>> [names[tag] for tag in tags[0, 0]]  # I-PER scores most at first, but may not open a sequence
        ['B-PER', 'I-PER', 'O']
        >>> crf(emissions).output.shape, crf(emissions).weights.shape
        (torch.Size([1, 3]), torch.Size([1, 3, 3]))
        >>> loss = -crf.log_likelihood(emissions, torch.tensor([[1, 2, 0]])).mean()
    """

    allowed_transitions: Tensor | None
    allowed_start: Tensor | None
    allowed_end: Tensor | None
    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        num_tags: int,
        *,
        allowed_transitions: Bool[Tensor, "K K"] | None = None,
        allowed_start: Bool[Tensor, " K"] | None = None,
        allowed_end: Bool[Tensor, " K"] | None = None,
    ) -> None:
        super().__init__()
        check_sizes("CRF", num_tags=num_tags)
        self.num_tags = num_tags
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        self.start = nn.Parameter(torch.empty(num_tags))
        self.end = nn.Parameter(torch.empty(num_tags))
        self._constrain("allowed_transitions", allowed_transitions, (num_tags, num_tags))
        self._constrain("allowed_start", allowed_start, (num_tags,))
        self._constrain("allowed_end", allowed_end, (num_tags,))
        self.reset_parameters()

    def _constrain(self, name: str, allowed: Tensor | None, shape: tuple[int, ...]) -> None:
        if allowed is not None:
            check_boolean("CRF", name, allowed, allowed.device)
            if allowed.shape != shape:
                raise ShapeError(
                    f"CRF: {name} has shape {tuple(allowed.shape)}, expected {shape}. "
                    "constraints(tags) makes it from the names of the tags."
                )
        self.register_buffer(name, allowed)

    def reset_parameters(self) -> None:
        """Initialize the parameters with small values: at first the emissions decide."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def extra_repr(self) -> str:
        """Return the arguments it was made with."""
        given = [name for name in Constraints._fields if getattr(self, name) is not None]
        return ", ".join([f"num_tags={self.num_tags}", *given])

    def forward(self, value: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None = None) -> AttentionOutput:
        """Return the probability of each tag at each step as weights, and their sum over the steps."""
        return _expect(*self._chain("value", value, mask))

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

    def log_partition(
        self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return ``log Z``; see `foci.functional.crf.log_partition`."""
        return crf.log_partition(*self._chain("emissions", emissions, mask))

    def log_likelihood(
        self,
        emissions: Float[Tensor, "B T K"],
        tags: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, " B"]:
        """Return ``log p(tags)`` of each row; tags at masked steps may have any value."""
        return crf.log_likelihood(*self._chain("emissions", emissions, mask), tags)

    def viterbi(
        self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None = None, k: int = 1
    ) -> crf.BestSequences:
        """Return the ``k`` best sequences, best first: ``tags (B, k, T)``, -1 at masked steps, and ``scores``."""
        return crf.viterbi(*self._chain("emissions", emissions, mask), k)

    def marginals(
        self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T K"]:
        """Return the probability of each tag at each step, 0 at masked ones."""
        return crf.marginals(*self._chain("emissions", emissions, mask))

    def scores(self) -> tuple[Float[Tensor, "K K"], Float[Tensor, " K"], Float[Tensor, " K"]]:
        """Return transitions, start and end as `foci.functional.crf` takes them, ``-inf`` where not allowed."""
        return (
            _forbid(self.transitions, self.allowed_transitions),
            _forbid(self.start, self.allowed_start),
            _forbid(self.end, self.allowed_end),
        )

    def _chain(
        self, name: str, emissions: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """Return the arguments of the functions in `foci.functional.crf`: what is not allowed scores ``-inf``."""
        check_shape("CRF", name, emissions, "batch", "step", self.num_tags)
        check_together("CRF", **{name: emissions, "transitions": self.transitions})
        if mask is not None:
            check_valid("CRF", "mask", mask, emissions.shape[0], emissions.shape[1], emissions.device)
            emissions = clear_unreadable(emissions, mask.unsqueeze(1))
        return emissions, *self.scores(), mask


def constraints(tags: Sequence[str], scheme: str = "BIO") -> Constraints:
    """Return the constraints of a chunking scheme, for tags named like ``O``, ``B-PER``, ``I-PER``, or ``O``, ``B``.

    In ``"BIO"`` every chunk begins with B and continues with I of the same type; in ``"BIOES"`` a chunk of
    several steps also ends with E, and one of a single step is S.

    Example:
        >>> constraints(["O", "B", "I"]).allowed_transitions.int().tolist()
        [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    """
    if scheme not in _SCHEMES:
        raise unknown_name("scheme", scheme, _SCHEMES)
    prefixes, inside, continuable, unfinished = _SCHEMES[scheme]
    if not tags or len(set(tags)) != len(tags):
        raise ConfigError(
            f"constraints: tags has {len(tags)} names, {len(set(tags))} of them different. Name each once."
        )
    parts = [tag.split("-", 1) for tag in tags]
    for tag, (prefix, *kind) in zip(tags, parts):
        if len(prefix) != 1 or prefix not in prefixes or (prefix == "O" and kind):
            raise ConfigError(
                f"constraints: tag {tag!r} does not belong to the scheme {scheme}, expected 'O' or one of "
                f"{', '.join(p for p in prefixes if p != 'O')}, alone or with a type, as in 'B-PER'."
            )

    def may_follow(before: list[str], after: list[str]) -> bool:
        if after[0] in inside:
            return before[0] in continuable and before[1:] == after[1:]
        return before[0] not in unfinished

    allowed = Constraints(
        torch.tensor([[may_follow(before, after) for after in parts] for before in parts]),
        torch.tensor([prefix not in inside for prefix, *_ in parts]),
        torch.tensor([prefix not in unfinished for prefix, *_ in parts]),
    )
    useless = [tag for tag, usable in zip(tags, _usable(allowed)) if not usable]
    if useless:
        raise ConfigError(
            f"constraints: {', '.join(useless)} can occur in no sequence of the scheme {scheme}: the tag "
            "that begins or ends its chunks is missing. Add it, or convert the tags to this scheme."
        )
    return allowed


def _usable(allowed: Constraints) -> list[bool]:
    """Return which tags lie on some path from an allowed start to an allowed end."""
    opened, closed = allowed.allowed_start, allowed.allowed_end
    for _ in range(len(opened)):
        opened = opened | (allowed.allowed_transitions & opened.unsqueeze(1)).any(dim=0)
        closed = closed | (allowed.allowed_transitions & closed.unsqueeze(0)).any(dim=1)
    usable: list[bool] = (opened & closed).tolist()
    return usable


def _forbid(scores: Tensor, allowed: Tensor | None) -> Tensor:
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
