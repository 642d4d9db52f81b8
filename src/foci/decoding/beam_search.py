"""Beam search over several hypotheses, with penalties for length and for unattended parts of the source.

    score(Y) = log P(Y | X) / lp(|Y|) + cp(X; Y),     cp = β · Σ_i log(min(Σ_j a_ij, 1))
    lp = ((5 + |Y|) / 6)^α   "gnmt"            lp = |Y|^α   "average"            |Y| counts EOS

Of all continuations of a source's open hypotheses, those that end (EOS) and are among the ``size`` likeliest are
finished; the ``size`` likeliest that do not end stay open. A source ends when no open hypothesis can still score above
the worst of its n best finished ones. The bound: log-probabilities only fall and lp only rises with length, and cp ≤ 0,
so that a hypothesis of log-probability ℓ never scores above ℓ / lp(longest). The stop is exact: without it the result
is the same.

Paper: Google's Neural Machine Translation System (Wu et al., 2016), eq. 14
Names: α = length_penalty, β = coverage_penalty, p_ij = attention averaged over heads, X = source, Y = hypothesis
Complexity: per step, one step of the decoder for size · B rows and O(size · V) for the choice
Differs: penalties rank finished hypotheses only, open ones have one length and are compared by log-probability; the
    coverage of a position that is never attended to counts as 1e-10, so that its logarithm is finite.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.decoding.constraints import GenerationConstraints
from foci.decoding.inputs import DecoderInputs
from foci.decoding.search_state import Hypothesis, SearchState
from foci.errors import ConfigError, check_positive, unknown_name
from foci.layers.interfaces import StepDecoder

_BLOCK = 128
_LEAST_COVERAGE = 1e-10

_FORMS: dict[str, Callable[[int, float], float]] = {
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,
    "average": lambda length, alpha: length**alpha,
}


@torch.no_grad()
def beam(
    decoder: StepDecoder,
    inputs: DecoderInputs,
    *,
    size: int = 5,
    n_best: int = 1,
    length_penalty: float = 0.6,
    length_form: str = "gnmt",
    coverage_penalty: float = 0.0,
    stop: str = "exact",
    constraints: GenerationConstraints | None = None,
) -> list[list[Hypothesis]]:
    """Search with the ``size`` best open hypotheses.

    Args:
        decoder: in ``eval()``.
        inputs: the decoder's memory and first state.
        size: the number of hypotheses that stay open.
        n_best: the number of hypotheses to return, at most ``size``. Where fewer were finished, the best open ones
            follow.
        length_penalty: α, 0 or more; 0 compares log-probabilities, and then a beam of 1 is greedy search.
        length_form: "gnmt" or "average", of the module's docstring.
        coverage_penalty: β, 0 or more; needs a decoder with attention to a source, and ``inputs.valid``.
        stop: "exact", or "full": end as soon as ``size`` hypotheses are finished, which is faster where the length
            penalty favors long ones, and may miss a better one; a beam of 1 is then greedy search with any penalty.
        constraints: allowed lengths and tokens.

    Returns:
        The ``n_best`` hypotheses of each source, best first.
    """
    _check(size, n_best, length_penalty, length_form, coverage_penalty, stop)
    if coverage_penalty and inputs.valid is None:
        raise ConfigError("beam: coverage_penalty needs inputs.valid, which positions exist, expected 0 without one.")
    constraints = constraints or GenerationConstraints()
    search = SearchState(decoder, inputs, constraints)
    form = _FORMS[length_form]
    most = [form(steps, length_penalty) for steps in search.max_steps]
    finished: list[list[Hypothesis]] = [[] for _ in search.sources]
    counts = [0] * len(search.sources)
    coverage: Tensor | None = None

    def ranked(row: int, number: int, log_prob: float, penalty: float, *, finished: bool) -> Hypothesis:
        score = log_prob / penalty
        if coverage is not None and inputs.valid is not None:
            score += coverage_penalty * _unread(coverage[row], inputs.valid[number])
        return Hypothesis(search.tokens[row].tolist(), score, log_prob, finished)

    while search.sources:
        logs = search.next()
        if coverage_penalty:
            coverage = _cover(coverage, search)
        width, (candidates, parents, chosen) = search.width, _candidates(search, logs, 2 * size)
        ends = chosen == constraints.eos
        length, penalty = search.steps + 1, form(search.steps + 1, length_penalty)
        ending = ends[:, :size] & (candidates[:, :size] > -torch.inf)
        for place, rank in ending.nonzero().tolist():
            number, row = search.sources[place], int(parents[place, rank])
            counts[number] += 1
            best = ranked(row, number, float(candidates[place, rank]), penalty, finished=True)
            bisect.insort(finished[number], best, key=lambda known: -known.score)
            del finished[number][n_best:]
        open_sums, ranks = candidates.masked_fill(ends, -torch.inf).topk(min(size, candidates.shape[1]), dim=1)
        rows = parents.gather(1, ranks)
        before = search.tokens, search.log_probs
        search.extend(rows.flatten(), chosen.gather(1, ranks).flatten(), open_sums.flatten())
        if coverage is not None:
            coverage = coverage.index_select(0, rows.flatten())
        places = []
        for place, (number, hope) in enumerate(zip(search.sources, open_sums[:, 0].tolist())):
            known = finished[number]
            beaten = len(known) == n_best and hope / most[number] <= known[-1].score
            enough = stop == "full" and counts[number] >= size
            if hope > -torch.inf and length < search.max_steps[number] and not beaten and not enough:
                places.append(place)
            elif len(known) < n_best and not enough:
                for row, log_prob in enumerate(open_sums[place, : n_best - len(known)].tolist(), place * search.width):
                    if log_prob > -torch.inf:
                        known.append(ranked(row, number, log_prob, penalty, finished=False))
                if not known:  # no token is allowed after any hypothesis: return the best one of the step before
                    log_prob = 0.0 if before[1] is None else float(before[1][place * width])
                    score = log_prob / form(max(1, length - 1), length_penalty)
                    known.append(Hypothesis(before[0][place * width].tolist(), score, log_prob, False))
        kept = search.keep(places)
        if kept is not None and coverage is not None:
            coverage = coverage.index_select(0, kept)
    return finished


def _check(size: int, n_best: int, length_penalty: float, length_form: str, coverage_penalty: float, stop: str) -> None:
    check_positive("beam", size=size, n_best=n_best)
    if n_best > size:
        raise ConfigError(f"beam: n_best is {n_best}, expected at most size={size}.")
    if length_penalty < 0 or coverage_penalty < 0:
        raise ConfigError(
            f"beam: length_penalty is {length_penalty} and coverage_penalty is {coverage_penalty}, expected neither "
            "below 0: the search needs this to know when to stop."
        )
    if length_form not in _FORMS:
        raise unknown_name("form of the length penalty", length_form, _FORMS)
    if stop not in ("exact", "full"):
        raise unknown_name("rule to stop by", stop, ("exact", "full"))


def top(scores: Float[Tensor, "N V"], k: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """Compute `torch.topk` of long rows, several times faster on a CPU: the k best are in the k best blocks."""
    rows, size = scores.shape
    blocks = size // _BLOCK
    if blocks < 4 * k:
        best = scores.topk(k, dim=1)
        return best.values, best.indices
    whole = scores[:, : blocks * _BLOCK].view(rows, blocks, _BLOCK)
    numbers = whole.amax(dim=2).topk(k, dim=1).indices
    columns = (numbers.unsqueeze(2) * _BLOCK + torch.arange(_BLOCK, device=scores.device)).flatten(1)
    rest = torch.arange(blocks * _BLOCK, size, device=scores.device).expand(rows, -1)
    columns = torch.cat([columns, rest], dim=1)
    best = scores.gather(1, columns).topk(k, dim=1)
    return best.values, columns.gather(1, best.indices)


def _candidates(search: SearchState, logs: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the likeliest continuations of each source: their log-probabilities, the rows they extend, the tokens."""
    values, tokens = top(logs, min(most, logs.shape[1]))
    sums = values if search.log_probs is None else values + search.log_probs.unsqueeze(1)
    sources, width = len(search.sources), search.width
    candidates, choice = sums.view(sources, -1).sort(dim=1, descending=True, stable=True)
    candidates, choice = candidates[:, :most], choice[:, :most]
    parents = torch.div(choice, values.shape[1], rounding_mode="floor")
    parents += torch.arange(0, sources * width, width, device=parents.device).unsqueeze(1)
    return candidates, parents, tokens.view(sources, -1).gather(1, choice)


def _cover(coverage: Tensor | None, search: SearchState) -> Tensor:
    """Return the sum of each hypothesis's weights over each position so far, this step included: (N, S)."""
    if search.attention is None:
        raise ConfigError("beam: coverage_penalty needs a decoder with attention to a source, expected 0 without one.")
    weights = search.attention.mean_heads() if len(search.attention.shape) == 4 else search.attention
    read = weights.dense().squeeze(1)
    return read if coverage is None else coverage + read


def _unread(coverage: Tensor, valid: Tensor) -> float:
    """Return Σ_i log(min(coverage_i, 1)), which is 0 where all of the source was attended to."""
    return float(coverage[valid].clamp(_LEAST_COVERAGE, 1.0).log().sum())
