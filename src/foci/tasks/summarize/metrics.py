"""The metrics of summaries: ROUGE beside simple baselines, and how much of a summary is taken from its source."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from foci.data.word_splitter import WordSplitter
from foci.metrics.rouge import KINDS, Words, against_all, compared_words, mean_of, novel_share, oracle_extract, rouge
from foci.scripts import sentence_texts
from foci.tasks.frame.task import Evaluation, Record, Table

_SIZES = (1, 2, 3, 4)
"""The n-grams that are counted as novel or copied."""


def compared_by(splitter: WordSplitter, stem: bool = False) -> Words:
    """Return the function that splits texts into the words that are compared: without case and punctuation.

    Args:
        splitter: splits texts as the run does; of its rules, unicode is ROUGE's own.
        stem: cut the endings of English words.
    """
    if splitter.rule in ("auto", "unicode"):
        return lambda text: compared_words(text, stem=stem)

    def words(text: str) -> list[str]:
        found = ("".join(compared_words(word, stem=stem)) for word in splitter.words(text))
        return [word for word in found if word]

    return words


def evaluate_summaries(
    records: Sequence[Record], produced: Sequence[str], words: Words, *, lead: int, extract: int
) -> Evaluation:
    """Return ROUGE of the summaries and of the baselines, and the shares of novel n-grams.

    Args:
        records: sources with their target and, if there are any, further references.
        produced: a summary for each.
        words: splits a text into words.
        lead: number of sentences of the lead baseline.
        extract: the largest number of sentences of the extractive oracle.
    """
    references = [[words(text) for text in (record["target"], *(record.get("references") or ()))] for record in records]
    sentences = [[one for text in sentence_texts(record["source"]) if (one := words(text))] for record in records]
    sources = [words(record["source"]) for record in records]
    systems: dict[str, list[Sequence[str]]] = {
        "model": [words(text) for text in produced],
        f"lead-{lead}": [[word for one in some[:lead] for word in one] for some in sentences],
        f"oracle-{extract}": [
            [word for place in oracle_extract(some, targets, extract) for word in some[place]]
            for some, targets in zip(sentences, references)
        ],
    }
    several = any(len(some) > 1 for some in references)
    metrics: dict[str, float | int] = {"texts": len(records)}
    rows = []
    for system, texts in systems.items():
        prefix = "" if system == "model" else f"{system.partition('-')[0]}_"
        ways = {"target": mean_of(rouge(text, targets[0]) for text, targets in zip(texts, references))}
        if several:
            all_of = [against_all(text, targets) for text, targets in zip(texts, references)]
            ways["max"] = mean_of(one.best for one in all_of)
            ways["mean"] = mean_of(one.mean for one in all_of)
        for way, found in ways.items():
            for kind in KINDS:
                name = f"{prefix}{kind}" + ("" if way == "target" else f"_{way}")
                metrics[name] = 100 * found[kind].f
                if way == "target" and system == "model":
                    metrics[f"{name}_precision"] = 100 * found[kind].precision
                    metrics[f"{name}_recall"] = 100 * found[kind].recall
            rows.append((system, way, *(round(100 * found[kind].f, 2) for kind in KINDS), fmean(map(len, texts))))
    table, novel = _novelty(systems["model"], [targets[0] for targets in references], sources)
    columns = ("system", "against", *KINDS, "words")
    return Evaluation({**metrics, **novel}, {}, {"rouge": Table(columns, tuple(rows)), "n-grams": table})


def _novelty(
    produced: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], sources: Sequence[Sequence[str]]
) -> tuple[Table, dict[str, float]]:
    """Return the shares of n-grams that are novel and that are copied from the source, of summaries and targets."""
    rows, metrics = [], {}
    for size in _SIZES:
        shares = []
        for texts in (produced, targets):
            known = [novel_share(text, source, size) for text, source in zip(texts, sources)]
            counted = [share for share in known if share is not None]
            shares.append(fmean(counted) if counted else 0.0)
        metrics[f"novel_{size}grams"] = shares[0]
        metrics[f"copied_{size}grams"] = 1 - shares[0]
        rows.append((size, *(round(value, 4) for share in shares for value in (1 - share, share))))
    columns = ("n", "copied by the model", "novel by the model", "copied in targets", "novel in targets")
    return Table(columns, tuple(rows)), metrics
