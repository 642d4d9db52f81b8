"""The answer for a sentence: its spans and words with their probabilities, as text, as JSON and as a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from foci.models.tagger import TagScores
from foci.tasks.frame.task import Prediction, Record
from foci.tasks.tag.decoding import Decoded, TagSequence, best_intent
from foci.tasks.tag.lexicon import TagLexicon
from foci.tasks.tag.schemes import PLAIN
from foci.tasks.tag.sentences import LabeledSpan, TaggedSentence, to_characters
from foci.viz.axis import Axis, Mark
from foci.viz.trace import Trace
from foci.weights import Weights


def answer_of(
    record: Record,
    sentence: TaggedSentence,
    sequence: TagSequence,
    decoded: Decoded,
    assets: TagLexicon,
    threshold: float,
    notes: Sequence[str],
) -> Prediction:
    """Return one tag sequence of a sentence as an answer."""
    spans = to_characters(sequence.spans, sentence.words)
    entries = [
        {**span._asdict(), "text": sentence.text[span.start : span.end], "probability": share}
        for span, share in zip(spans, sequence.span_probabilities)
    ]
    number = {tag: place for place, tag in enumerate(assets.tags)}
    details: dict[str, Any] = {
        "spans": [one for one in entries if one["probability"] >= threshold],
        "words": [
            {
                "start": start,
                "end": end,
                "text": sentence.text[start:end],
                "tag": tag,
                "probability": float(decoded.marginals[place, number[tag]]),
            }
            for place, ((start, end), tag) in enumerate(zip(sentence.words, sequence.tags))
        ],
    }
    if notes:
        details["notes"] = list(notes)
    if len(details["spans"]) < len(entries):
        details["below_threshold"] = [one for one in entries if one["probability"] < threshold]
    intent = ""
    if assets.intents:
        intent = best_intent(decoded, assets)
        shares = {name: float(share) for name, share in zip(assets.intents, decoded.intents)}
        details |= {"intent": intent, "intent_probabilities": shares}
    kept = [span for span, share in zip(spans, sequence.span_probabilities) if share >= threshold]
    output = written(sentence.text, kept, intent, all_words=assets.scheme == PLAIN)
    return Prediction(record, output, sequence.probability, details)


def written(text: str, spans: Sequence[LabeledSpan], intent: str, *, all_words: bool) -> str:
    """Return the text with its labels: ``at [time 7 pm]``; where each word has a label, ``at/ADP 7/NUM``."""
    pieces, done = [], 0
    for start, end, label in spans:
        pieces += [text[done:start], f"{text[start:end]}/{label}" if all_words else f"[{label} {text[start:end]}]"]
        done = end
    marked = "".join([*pieces, text[done:]])
    return f"{intent}: {marked}" if intent else marked


def trace_of(
    scores: TagScores,
    row: int,
    sentence: TaggedSentence,
    decoded: Decoded,
    assets: TagLexicon,
    answer: Prediction,
) -> Trace:
    """Return the probabilities of the tags of each word, and the attentions of the sentence."""
    best, length = decoded.sequences[0], len(sentence.words)
    marks = tuple(Mark(*span, share) for span, share in zip(best.spans, best.span_probabilities))
    axes = {
        "words": Axis("tokens", tuple(sentence.tokens), "words", marks=marks),
        "tags": Axis("tags", assets.tags, "tags"),
    }
    handles = {"tags": Weights.from_tensor(torch.from_numpy(decoded.marginals).unsqueeze(0))}
    axes_of = {"tags": ("words", "tags")}
    if assets.intents:
        axes["intent"] = Axis.from_tokens([str(answer.details["intent"])], "intent")
    for name, handle in scores.attentions.items():
        weights = handle.dense()[row : row + 1].float().cpu()
        inside = weights[:, :length] if name == "intent" else weights[:, :, :length, :length]
        handles[name] = Weights.from_tensor(inside)
        axes_of[name] = ("intent", "words") if name == "intent" else ("words", "words")
    return Trace.from_handles(
        handles, axes, axes_of=axes_of, text=answer.output, metadata={"probability": best.probability}
    )


def show(sentence: TaggedSentence) -> str:
    """Return a tagged sentence as an answer writes it."""
    return written(sentence.text, sentence.spans, sentence.intent, all_words=is_plain(sentence))


def is_plain(sentence: TaggedSentence) -> bool:
    """Return whether each word has a label of its own, as parts of speech are."""
    return [(start, end) for start, end, _ in sentence.spans] == list(sentence.words)
