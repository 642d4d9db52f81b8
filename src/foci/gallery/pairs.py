"""Scenes of attention between two texts."""

from __future__ import annotations

import torch
from torch import Tensor

from foci.gallery.scene import Scene, build, fit

FEATURES = ["Mary", "John", "going", "place", "other"]
MEANING = {
    "Mary": {"Mary": 1.5},
    "John": {"John": 1.5},
    "went": {"going": 1.5},
    "go": {"going": 1.5},
    "where": {"place": 2.0, "John": 1.0},  # the question asks for his place, which an encoder would represent
    "garden": {"place": 1.8, "Mary": 1.2},
    "kitchen": {"place": 1.8, "John": 1.2},
}


def attention_over_attention() -> Scene:
    """A question and a document."""
    document = ["Mary", "went", "to", "the", "garden", "and", "John", "went", "to", "the", "kitchen"]
    question = ["where", "did", "John", "go"]
    matched = build("attention_over_attention", value_dim=len(FEATURES))(_meanings(document), _meanings(question))
    shares = matched.right.dense()[0].tolist()
    return Scene(
        weights=torch.cat([matched.weights.dense()[0], matched.left.dense()]),
        rows=[*(f"{word}  (β = {share:.2f})" for word, share in zip(question, shares)), "together: s = αᵀβ"],
        columns=document,
        row_axis="question",
        column_axis="document",
        caption="Each word of the question attends to the document (α, the upper rows). Its weight, β, is the mean "
        "attention of the document's words to it. The last row is their product: its largest weight is on the "
        "answer. The word vectors are made up; there are no parameters.",
    )


def word_by_word() -> Scene:
    """Whether the premise entails the hypothesis."""
    premise = ["a", "girl", "plays", "the", "violin", "on", "a", "small", "stage"]
    hypothesis, wanted = ["a", "girl", "makes", "music"], [0, 1, 2, 4]
    torch.manual_seed(0)
    left, right = torch.randn(1, len(premise), 12), torch.randn(1, len(hypothesis), 12)
    match = build("word_by_word", model_dim=12)
    rows = torch.arange(len(hypothesis))
    fit(match, lambda: -match(left, right).weights.dense()[0, rows, wanted].log().mean(), steps=50)
    return Scene(
        weights=match(left, right).weights.dense()[0],
        rows=hypothesis,
        columns=premise,
        row_axis="hypothesis",
        column_axis="premise",
        caption="Each word of the hypothesis attends to the premise, given what the words before it attended to: "
        "`makes` attends to `plays`, `music` to `violin`. Fitted to this pair in 50 steps; the word vectors "
        "are random.",
    )


def _meanings(words: list[str]) -> Tensor:
    return torch.tensor([[[MEANING.get(word, {"other": 0.7}).get(name, 0.0) for name in FEATURES] for word in words]])
