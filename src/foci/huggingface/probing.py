"""Hugging Face models as what `foci.probe` takes: classifiers, language models, and those with encoder and decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foci.errors import ConfigError
from foci.huggingface.loading import Loaded, load
from foci.huggingface.names import kind_of
from foci.huggingface.options import ReadOptions
from foci.huggingface.reading import longest_answer
from foci.huggingface.tokens import encoded, labels_of, special_of
from foci.probing import Source, Subject, of_module
from foci.probing.subject import overlapping

_CLASSIFIES = "ForSequenceClassification"


def subjects(
    name: str | Path, texts: Sequence[str], rationales: Sequence[Sequence[tuple[int, int]] | None] = ()
) -> Iterator[Subject]:
    """Return texts as inputs of a model that can be probed.

    A classifier answers with its classes, a language model with the token that follows the text, a model with encoder
    and decoder with the tokens that it generates.

    Args:
        name: a folder with a model and its tokenizer, or the name of one on the Hub whose files are in the local cache.
        texts: what it reads.
        rationales: of each text what people marked as the reason, ``(begin, end)`` in characters; None if nobody did.
    """
    loaded = load(name, ReadOptions(), for_score=True)
    if not (loaded.answers or _classifies(loaded.model.config) or loaded.model.can_generate()):
        raise ConfigError(
            f"{name}: is a {type(loaded.model).__name__}, which answers nothing. Expected a model with classes "
            f"(…{_CLASSIFIES}), a language model, or one with encoder and decoder."
        )
    for number, text in enumerate(texts):
        spans = rationales[number] if number < len(rationales) else None
        with torch.no_grad():
            subject = _subject(loaded, text, spans)
        yield subject


def _classifies(config: Any) -> bool:
    return any(one.endswith(_CLASSIFIES) for one in config.architectures or ())


def _subject(loaded: Loaded, text: str, spans: Sequence[tuple[int, int]] | None) -> Subject:
    prompt = encoded(loaded.tokenizer, text)
    ids = prompt.inputs["input_ids"]
    if ids.shape[1] > loaded.longest:
        raise ConfigError(
            f"a text has {ids.shape[1]} tokens, but the model reads at most {loaded.longest}. Shorten it."
        )
    inputs: dict[int | str, Any] = dict(prompt.inputs.items())
    if loaded.answers and not _classifies(loaded.model.config):
        produced = loaded.model.generate(
            **prompt.inputs, max_new_tokens=longest_answer(loaded.model, prompt.inputs), do_sample=False
        )
        inputs |= {"decoder_input_ids": produced[:, :-1], "use_cache": False}
    marked = None if spans is None else _marked(prompt.spans, spans, len(text))
    tokens = tuple(labels_of(loaded.tokenizer, ids[0]))
    source = Source("input_ids", tokens, frozenset(special_of(loaded.tokenizer, ids[0])), marked)
    mask = loaded.tokenizer.mask_token_id
    causal = loaded.is_causal and not loaded.answers
    answer = _of_all if "decoder_input_ids" in inputs else None
    subject = of_module(loaded.model, inputs, answer=answer, source=source, neutral=mask, causal=causal, title=text)
    counts: Counter[str] = Counter()
    attentions = {}
    for path, one in subject.attentions.items():
        kind = kind_of(loaded, path)
        attentions[kind.format(counts[kind])] = one
        counts[kind] += 1
    # Beside its source, a decoder reads its own output, which has other tokens.
    notes = () if loaded.answers else subject.notes
    return replace(subject, attentions=attentions, notes=notes)


def _of_all(output: Any) -> Tensor:
    probabilities: Tensor = output.logits.float().softmax(dim=-1)
    return probabilities


def _marked(places: list[tuple[int, int]] | None, spans: Sequence[tuple[int, int]], size: int) -> frozenset[int]:
    if places is None:
        raise ConfigError(
            "probe: rationales are given, but the model's tokenizer does not tell where tokens stand in the text "
            "(it is not a fast one). Leave the rationales out."
        )
    return overlapping(places, spans, size)
