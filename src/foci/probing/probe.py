"""Probe inputs one by one, and join what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError, DataError
from foci.metrics.ranking import Estimate, average_precision, estimate, marked_share
from foci.probing.counterfactual import replace_weights
from foci.probing.erasure import erase
from foci.probing.options import Options
from foci.probing.report import CHANCE, MATTERS, REPLACEABLE, SMALL, UNCLEAR, UNIFORM, Probe, Row
from foci.probing.subject import Erasing, Source, Subject, Unit

GRADIENT = "gradient × input"
_DIFFERENT = 0.5 * float(np.log(2.0))
"""Half of the largest divergence: from here on weights are called quite different."""
_FEW = 10
"""With fewer inputs than this, an interval over them is too narrow."""
_ENOUGH = 20
"""With fewer random orders than this, ranks among them are too coarse."""


class _Key(NamedTuple):
    name: str
    head: int | None
    source: str
    unit: Unit


@dataclass
class _Found:
    """The measures of an attention, by name, one value per input, and the same by chance."""

    measures: dict[str, list[float]] = field(default_factory=dict)
    chance: dict[str, list[float]] = field(default_factory=dict)
    beaten: list[float] = field(default_factory=list)  # the share of random orders that change the answer less

    def add(self, name: str, value: float, chance: float | None = None) -> None:
        self.measures.setdefault(name, []).append(value)
        if chance is not None:
            self.chance.setdefault(name, []).append(chance)


def probe_subjects(
    subjects: Iterable[Subject], options: Options | None = None, progress: Callable[[int], object] | None = None
) -> Probe:
    """Probe inputs of one model.

    Args:
        subjects: the inputs.
        options: how.
        progress: called with the number of inputs that were just done.
    """
    options = options or Options()
    found: dict[_Key, _Found] = {}
    notes: dict[str, None] = {}
    count = 0
    for number, subject in enumerate(subjects):
        _probe_one(subject, options, options.seed + 1000 * number, found, notes)
        count += 1
        if progress is not None:
            progress(1)
    if not count:
        raise DataError("probe: there are no inputs, expected at least one.")
    if not found:
        raise DataError(f"probe: no attention reads what can be erased. {' '.join(notes)}".rstrip())
    rows = [_row(key, one, options) for key, one in found.items()]
    return Probe(tuple(rows), count, tuple(notes))


def _probe_one(
    subject: Subject, options: Options, seed: int, found: dict[_Key, _Found], notes: dict[str, None]
) -> None:
    notes |= dict.fromkeys(subject.notes)
    if not any(one.source in subject.sources for one in subject.attentions.values()):
        return
    for key, source in subject.sources.items():
        if len(source.erasable) < 2:
            notes[f"inputs whose {key} has fewer than two parts that can be erased are left out"] = None
            continue
        erasing = Erasing(subject, key, options.batch_size)
        scores: dict[_Key, NDArray[np.float64]] = {_Key(GRADIENT, None, key, source.unit): erasing.gradient()}
        for name, attended in subject.attentions.items():
            if attended.source == key:
                by = _Key(name, None, key, source.unit)
                scores[by] = attended.weights.mean(axis=0)
                if not options.attentions_only and len(attended.weights) > 1:
                    scores |= {by._replace(head=head): one for head, one in enumerate(attended.weights)}
        named = {str(number): one for number, one in enumerate(scores.values())}
        erased, random = erase(erasing, named, options.trials, seed)
        for one, (by, values) in zip(erased.values(), scores.items()):
            row = found.setdefault(by, _Found())
            row.add("comprehensiveness", one.comprehensiveness, float(random[:, 0].mean()))
            row.add("sufficiency", one.sufficiency, float(random[:, 1].mean()))
            row.add("tau", one.tau, 0.0)
            below = (random[:, 0] < one.comprehensiveness).mean()
            row.beaten.append(float(below + (random[:, 0] == one.comprehensiveness).mean() / 2))
            _agree(row, values, source)
            _replace(row, erasing, by, options, seed, notes)


def _agree(row: _Found, values: NDArray[np.float64], source: Source) -> None:
    """Compare with what people marked; a random score reaches the share of it."""
    erasable = source.erasable
    marked = {erasable.index(place) for place in source.gold or () if place in erasable}
    if marked:
        share, scores = len(marked) / len(erasable), values[erasable]
        row.add("auprc", average_precision(scores, marked), share)
        row.add("f1", marked_share(scores, marked), share)
        if source.unit == "regions":
            row.add("pointing", float(scores.any() and int(scores.argmax()) in marked), share)


def _replace(row: _Found, erasing: Erasing, by: _Key, options: Options, seed: int, notes: dict[str, None]) -> None:
    if by.name == GRADIENT or not options.permutations:
        return
    paths = erasing.subject.attentions[by.name].paths
    if not paths:
        notes[f"{by.name}: its weights are not replaced: no module is known to compute them"] = None
        return
    try:
        other = replace_weights(
            erasing, paths, by.head, permutations=options.permutations, steps=options.steps, seed=seed
        )
    except ConfigError as error:  # recorded, but not made of weights and values that can be edited
        notes[f"{by.name}: its weights are not replaced: {error}"] = None
        return
    row.add("uniform", other.uniform)
    row.add("permuted", other.permuted)
    if other.adversarial is not None:
        row.add("adversarial", other.adversarial)


def _row(key: _Key, found: _Found, options: Options) -> Row:
    measures = {name: estimate(values, seed=options.seed) for name, values in found.measures.items()}
    chance = {name: float(np.mean(values)) for name, values in found.chance.items()}
    return Row(key.name, key.head, key.source, measures, chance, _verdicts(found, measures, options), key.unit)


def _verdicts(found: _Found, measures: Mapping[str, Estimate], options: Options) -> tuple[str, ...]:
    """Return what the measures say.

    Over inputs the interval of the difference from chance must be above 0. Of few inputs that interval is too narrow:
    there it is the rank of each among its random orders that counts. Without an effect it is any from 0 to 1, so that
    their mean is as high as here with a probability of at most 5 %.
    """
    pairs = zip(found.measures["comprehensiveness"], found.chance["comprehensiveness"])
    difference = estimate([value - chance for value, chance in pairs], seed=options.seed)
    count, ranks = len(found.beaten), float(np.mean(found.beaten))
    if difference.low is None or difference.high is None or count < _FEW:
        highest = min(0.95, 0.5 + 1.645 / float(np.sqrt(12 * count)))
        matters, no_more = options.trials >= _ENOUGH and ranks >= highest, ranks <= 0.5
    else:
        matters, no_more = difference.low > 0, difference.high < SMALL
    verdicts = [MATTERS if matters else CHANCE if no_more else UNCLEAR]
    if "uniform" in measures and measures["uniform"].value < SMALL:
        verdicts.append(UNIFORM)
    elif "adversarial" in measures and measures["adversarial"].value > _DIFFERENT:
        verdicts.append(REPLACEABLE)
    return tuple(verdicts)
