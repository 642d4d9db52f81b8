"""Scenes of a whole text: weights of its words, and tags of its words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foci import masks
from foci.gallery.scene import Scene, build, set_parameter
from foci.mechanisms.structured import constraints

ABOUT = ["evening", "soup", "service"]
REVIEW = [
    ["we", "came", "on", "a", "friday", "evening"],
    ["the", "soup", "was", "simply", "delicious"],
    ["but", "the", "service", "was", "awfully", "slow"],
]
FEELING = {"simply": 0.5, "delicious": 1.0, "awfully": 0.8, "slow": 0.9, "evening": 0.2, "friday": 0.15, "but": 0.2}


def pool() -> Scene:
    """Three sentences, each pooled on its own by two learned vectors."""
    value, valid = _review()
    about = torch.tensor([[float(word in ABOUT) for word in sentence] for sentence in _padded(REVIEW)])
    attention = build("pool", value_dim=2, num_queries=2)
    set_parameter(attention.project.weight, torch.eye(2))
    set_parameter(attention.project.bias, 0.0)
    set_parameter(attention.context, 4.5 * torch.eye(2))
    weights = attention(torch.stack([value[0, ..., 0], about], dim=-1), valid[0]).weights
    return Scene(
        weights=weights.dense().transpose(0, 1).detach(),
        rows=["sentence 1", "sentence 2", "sentence 3"],
        texts=_padded(REVIEW),
        panels=["the first learned vector", "the second learned vector"],
        across=1,
        caption="Each row is one sentence of a review, pooled into one vector by each of two learned vectors, set by "
        "hand. The first scores words of judgement highly; without them its weights are nearly uniform. The "
        "second, of `num_queries=2`, reads what the sentence is about. Padding gets exactly 0.",
    )


def hierarchical() -> Scene:
    """The same review as one document."""
    value, valid = _review()
    attention = build("hierarchical", value_dim=2)
    _seek_feeling(attention.word_pool)
    _seek_feeling(attention.sentence_pool)
    weights = attention(value, valid).weights
    shares = weights.sentences.dense()[0].tolist()
    return Scene(
        weights=torch.stack([weights.words.dense()[0], weights.dense().view(valid.shape[1:])]),
        rows=[f"sentence {number}: {share:.2f}" for number, share in enumerate(shares, start=1)],
        texts=_padded(REVIEW),
        panels=["weight of each word in its sentence", "weight of each word in the review"],
        across=1,
        caption="The review of the picture for `pool` as one document. Words have weights in their sentence, sentences "
        "in the document (the numbers beside them), and their product is each word's weight in the document. "
        "Parameters are set by hand.",
    )


def crf() -> Scene:
    """Tags constrained by their neighbors."""
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    scores = {
        "Maria": [0.2, 2.5, 1.0, 0.2, 0.0],
        "Schmidt": [0.3, 1.2, 2.4, 0.2, 0.0],
        "flew": [3.5, 0.0, 0.0, 0.0, 0.0],
        "to": [3.5, 0.0, 0.0, 0.2, 0.0],
        "New": [0.8, 0.1, 0.0, 1.9, 2.2],
        "York": [0.2, 0.3, 0.0, 1.3, 3.0],
    }
    emissions = torch.tensor([list(scores.values())])
    tagger = build("crf", num_tags=len(tags), **constraints(tags)._asdict())
    for parameter in tagger.parameters():
        set_parameter(parameter, 0.0)
    return Scene(
        weights=torch.cat([emissions.softmax(dim=-1), tagger(emissions).weights.dense()]),
        rows=list(scores),
        columns=tags,
        panels=["each word separately (softmax)", "the whole sentence (crf)"],
        row_axis="word",
        column_axis="tag",
        scale="probability",
        caption="Made-up scores for names of persons and places. Word by word `New` is tagged I-LOC, the inside of a "
        "name without a beginning. The CRF scores whole sequences, in which an inside tag must follow its beginning: "
        "`New` becomes B-LOC.",
    )


def _review() -> tuple[Tensor, Tensor]:
    """Words as ``(feeling, 1)``, the sentences padded to one length, and which words exist."""
    value = [[[FEELING.get(word, 0.0), 1.0] for word in sentence] for sentence in _padded(REVIEW)]
    lengths = [len(sentence) for sentence in REVIEW]
    return torch.tensor([value]), masks.lengths(lengths, max(lengths)).unsqueeze(0)


def _seek_feeling(attention: Any) -> None:
    set_parameter(attention.project.weight, torch.eye(2))
    set_parameter(attention.project.bias, 0.0)
    set_parameter(attention.context, torch.tensor([4.5, 0.0]))


def _padded(sentences: list[list[str]]) -> list[list[str]]:
    longest = max(map(len, sentences))
    return [sentence + [""] * (longest - len(sentence)) for sentence in sentences]
