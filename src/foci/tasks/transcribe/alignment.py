"""When and how surely each token of a hypothesis was heard, by the decoder's attention and by CTC."""

from __future__ import annotations

from typing import NamedTuple

import torch
from numpy import ndarray

from foci.data import BOS
from foci.decoding import Hypothesis
from foci.functional import ctc
from foci.models.recognizer import Recognizer
from foci.tasks.transcribe.assets import SpeechAssets
from foci.tasks.transcribe.search import Answer
from foci.tasks.transcribe.words import SpokenWord, spoken_words
from foci.weights import Weights


class Alignment(NamedTuple):
    """A hypothesis with its words, its attention, and CTC's first and last cell of each token."""

    text: str
    words: list[SpokenWord]
    hypothesis: Hypothesis
    weights: Weights | None
    spans: list[tuple[int, int]] | None


def align(model: Recognizer, assets: SpeechAssets, answer: Answer, hypothesis: Hypothesis, seconds: float) -> Alignment:
    """Return when and how surely each token of a hypothesis was heard; a cell lasts ``seconds``."""
    tokens = hypothesis.tokens
    encoded, device = answer.encoded, answer.encoded.values.device
    weights: Weights | None = None
    log_probs = [0.0] * len(tokens)
    if model.decoder is not None:
        target = torch.tensor([[BOS, *tokens]], device=device)
        taught = model.teach(encoded, target)
        weights = taught.attentions["decoder.cross"]
        logs = torch.log_softmax(taught.logits[0].double(), dim=-1)
        log_probs = [float(logs[place, token]) for place, token in enumerate(tokens)]
    spans = None
    if model.ctc_output is not None:
        frames = model.ctc_log_probs(encoded)[0]
        if ctc.shortest_path(tokens) <= len(frames):
            spans = ctc.align(frames, tokens)
            if model.decoder is None:
                log_probs = [float(frames[a : b + 1, token].max()) for (a, b), token in zip(spans, tokens)]
    over = None if weights is None else _mean_heads(weights)[: len(tokens)]
    words = spoken_words(assets.tokenizer, tokens, log_probs, over, spans, encoded.values.shape[1], seconds)
    return Alignment(assets.tokenizer.decode(tokens).strip(), words, hypothesis, weights, spans)


def _mean_heads(weights: Weights) -> ndarray:
    """Return the weights of the first row of a batch, ``(U, S)``, the mean of its heads."""
    dense = weights.dense()[0].float()
    found: ndarray = (dense.mean(dim=0) if dense.dim() == 3 else dense).cpu().numpy()
    return found
