"""Word alignments of sentence pairs: joining two directions, and how well they fit alignments made by people.

    intersection   F ∩ B, of a source-to-target alignment F and a target-to-source alignment B
    union          F ∪ B
    grow-diag      the intersection; then, until nothing changes, each link of the union beside a link (of its eight
                   neighbors) one of whose two words has none yet
    … -final       then each link of F, then of B, one of whose two words has none yet; -final-and: both
    precision      |A ∩ P| / |A|          recall   |A ∩ S| / |S|
    AER            1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)
    agreement      2 |F ∩ B| / (|F| + |B|)

Paper: A Systematic Comparison of Various Statistical Alignment Models (Och, Ney, 2003) for the rates; Statistical
    Phrase-Based Translation (Koehn, Och, Marcu, 2003), section 3.1, for growing
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, get_args

from foci.errors import ConfigError, DataError, unknown_name
from foci.metrics.attention import Links, alignment_error_rate, parse_pharaoh
from foci.names import Symmetrization

_NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


class AlignmentScores(NamedTuple):
    """The result of `alignment_scores`, each from 0 to 1."""

    aer: float
    """The alignment error rate; 0 is best."""
    precision: float
    """The share of the predicted links that are possible."""
    recall: float
    """The share of the sure links that were predicted."""
    predicted: int
    """How many links were predicted."""
    sure: int
    """How many sure ones there are."""


def symmetrize(forward: Links, backward: Links, method: Symmetrization = "grow-diag-final-and") -> Links:
    """Join the alignments of one pair by two models, both as ``(source, target)`` of the same text.

    Links are visited target by target, and within one by source, until nothing is added; a link that was just added
    counts at once.

    Args:
        forward: of a model from source to target.
        backward: of a model from target to source, turned around: see `transposed`.
        method: how they are joined.

    Example:
        >>> forward, backward = Links(frozenset({(0, 0), (1, 1), (1, 2)})), Links(frozenset({(0, 0), (1, 1), (2, 1)}))
        >>> sorted(symmetrize(forward, backward, "intersection").sure)
        [(0, 0), (1, 1)]
        >>> sorted(symmetrize(forward, backward, "grow-diag").sure)
        [(0, 0), (1, 1), (1, 2), (2, 1)]
    """
    if method not in get_args(Symmetrization):
        raise unknown_name("symmetrization", method, get_args(Symmetrization))
    one, other = forward.all, backward.all
    if method in ("intersection", "union"):
        return Links(one & other if method == "intersection" else one | other)
    links = set(one & other)
    sources, targets = {source for source, _ in links}, {target for _, target in links}

    def add(link: tuple[int, int], lonely: bool) -> bool:
        """Add a link one of whose words has none (both, if ``lonely``); return whether it was."""
        free = (link[0] not in sources, link[1] not in targets)
        if link in links or not (all(free) if lonely else any(free)):
            return False
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])
        return True

    grown = True
    while grown:
        grown = False
        for link in _by_target(one | other):
            if link in links:
                near = [(link[0] + down, link[1] + right) for down, right in _NEIGHBORS]
                added = [add(each, lonely=False) for each in near if each in one | other]
                grown = grown or any(added)
    if method != "grow-diag":
        for link in (*_by_target(one), *_by_target(other)):
            add(link, lonely=method == "grow-diag-final-and")
    return Links(frozenset(links))


def transposed(links: Links) -> Links:
    """Return the links with source and target exchanged."""
    return Links(*(frozenset((target, source) for source, target in kind) for kind in links))


def agreement(forward: Iterable[Links], backward: Iterable[Links]) -> float:
    """Return ``2 |F ∩ B| / (|F| + |B|)`` over all sentences: 1 if two directions give the same links, without gold.

    Example:
        >>> agreement(parse_pharaoh("0-0 1-1"), parse_pharaoh("0-0 1-2"))
        0.5
    """
    both = total = 0
    for one, other in zip(forward, backward, strict=True):
        both += 2 * len(one.all & other.all)
        total += len(one.all) + len(other.all)
    return both / total if total else 0.0


def alignment_scores(predicted: Sequence[Links], gold: Sequence[Links]) -> AlignmentScores:
    """Return AER, precision and recall over all sentences; P contains S.

    Precision of no links at all is 1, recall of no sure ones too.

    Example:
        >>> scores = alignment_scores(parse_pharaoh("0-0 1-1 2-1"), parse_pharaoh("0-0 1-1 2-2 2p1"))
        >>> round(scores.aer, 3), scores.precision, round(scores.recall, 3)
        (0.167, 1.0, 0.667)
    """
    rate = alignment_error_rate(predicted, gold)
    ours, sure = sum(len(one.all) for one in predicted), sum(len(one.sure) for one in gold)
    possible = sum(len(one.all & theirs.all) for one, theirs in zip(predicted, gold))
    found = sum(len(one.all & theirs.sure) for one, theirs in zip(predicted, gold))
    return AlignmentScores(rate, possible / ours if ours else 1.0, found / sure if sure else 1.0, ours, sure)


def parse_gold(lines: Iterable[str], sizes: Sequence[tuple[int, int]], origin: str, *, first: int = 0) -> list[Links]:
    """Parse gold alignments in one of two forms, told apart by the first line that is not empty.

    Pharaoh's has a line per sentence, ``0-0 1p2`` (``p`` or ``?``: possible alone). That of the shared tasks of 2003
    and 2005 has a line per link, ``sentence source target S|P``, all counted from 1; S where there is no letter.

    Args:
        lines: of the file.
        sizes: of each sentence, the number of words of source and target, which links are checked against.
        origin: the name of the file, for messages.
        first: the number of the first word in Pharaoh's form.

    Example:
        >>> parse_gold(["1 1 2 S", "1 2 1 P"], [(2, 2)], "gold") == parse_gold(["0-1 1p0"], [(2, 2)], "gold")
        True
    """
    lines = list(lines)
    begun = next((line for line in lines if line.strip()), "")
    by_link = all(part.isdecimal() for part in begun.split()[:3]) and len(begun.split()) >= 3
    if by_link and first != 0:
        raise ConfigError(f"{origin}: first is {first}, expected it for Pharaoh's form alone. Leave it out.")
    entries = _by_link(lines, len(sizes), origin) if by_link else _by_sentence(lines, len(sizes), origin, first)
    found: list[tuple[set[tuple[int, int]], set[tuple[int, int]]]] = [(set(), set()) for _ in sizes]
    for number, sentence, link, sure in entries:
        for what, place, size in zip(("source", "target"), link, sizes[sentence]):
            if not 0 <= place < size:
                counted = place + (1 if by_link else first)
                raise DataError(
                    f"{origin}, line {number}: word {counted} of the {what}, expected one of its {size} words of "
                    f"sentence {sentence + 1}. Does the file belong to these sentences, in this direction?"
                )
        found[sentence][not sure].add(link)
    return [Links(frozenset(sure), frozenset(possible)) for sure, possible in found]


_Entry = tuple[int, int, tuple[int, int], bool]
"""Line, sentence, link, and whether it is sure."""


def _by_sentence(lines: Sequence[str], count: int, origin: str, first: int) -> Iterator[_Entry]:
    if len(lines) != count:
        raise DataError(
            f"{origin}, line {min(len(lines), count) + 1}: {len(lines)} lines, but {count} sentence pairs, expected as "
            "many of both. Does the file belong to these sentences?"
        )
    for number, line in enumerate(lines, start=1):
        try:
            (parsed,) = parse_pharaoh(line, first=first) or [Links(frozenset())]
        except DataError as error:
            reason = str(error).partition("has ")[2]
            raise DataError(f"{origin}, line {number}: has {reason}") from error
        yield from ((number, number - 1, link, link in parsed.sure) for link in parsed.all)


def _by_link(lines: Sequence[str], count: int, origin: str) -> Iterator[_Entry]:
    for number, line in enumerate(lines, start=1):
        parts = line.split()
        if not parts:
            continue
        kind = parts[3] if len(parts) > 3 else "S"
        if len(parts) < 3 or not all(part.isdecimal() for part in parts[:3]) or kind not in ("S", "P"):
            raise DataError(f"{origin}, line {number}: is {line.strip()!r}, expected sentence source target S|P.")
        sentence, source, target = (int(part) - 1 for part in parts[:3])
        if not 0 <= sentence < count:
            raise DataError(f"{origin}, line {number}: sentence {sentence + 1}, but there are {count} sentence pairs.")
        yield number, sentence, (source, target), kind == "S"


def _by_target(links: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(links, key=lambda link: (link[1], link[0]))
