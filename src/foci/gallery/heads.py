"""Scenes of several heads and of several steps."""

from __future__ import annotations

import torch

from foci.gallery.scene import Scene, build, set_parameter
from foci.gallery.sentence import SIZE, english, german, sentence_scene

WORDS = {
    "the": "article",
    "old": "adjective",
    "man": "noun",
    "reads": "verb",
    "his": "pronoun",
    "paper": "noun",
    "in": "preposition",
    "a": "article",
    "garden": "noun",
}


def multi_head() -> Scene:
    """Four heads, each with a task of its own."""
    words, size = list(WORDS), len(WORDS)
    kinds = sorted(set(WORDS.values()))
    positions = torch.eye(size)
    kind_of = torch.eye(size)[[kinds.index(kind) for kind in WORDS.values()]]
    # A word is its position and its kind; the other half of its vector is not needed.
    features = torch.cat([positions, kind_of, torch.zeros(size, 2 * size)], dim=1).unsqueeze(0)

    after = torch.eye(size).roll(1, dims=0).tril()  # from position i to i + 1
    all_to_verb = torch.zeros(size, size)
    all_to_verb[kinds.index("verb")] = 1.0
    position, kind = slice(0, size), slice(size, 2 * size)
    heads = [  # features of the query, their mapping, features of the key
        (position, after.mT, position),
        (position, after, position),
        (kind, torch.eye(size), kind),
        (position, all_to_verb, kind),
    ]
    attention = build("multi_head", model_dim=4 * size, num_heads=4)
    of_query, of_key = torch.zeros(2, 4 * size, 4 * size)
    for number, (looked_at, made, compared) in enumerate(heads):
        head = slice(number * size, (number + 1) * size)
        of_query[head, looked_at] = 12 * made
        of_key[head, compared] = torch.eye(size)
    set_parameter(attention.query_layer.weight, of_query)
    set_parameter(attention.key_layer.weight, of_key)
    return Scene(
        weights=attention(features, features).weights.dense()[0],
        rows=words,
        columns=words,
        panels=["head 1: the word before", "head 2: the word after", "head 3: words of its kind", "head 4: the verb"],
        row_axis="query",
        column_axis="key",
        caption="Self-attention with four heads. Words have features for their position and their kind, and the "
        "projections are set by hand so that each head has a task. Before the first word and after the last there is "
        "none: there the head attends to all words equally.",
    )


def multi_step() -> Scene:
    """Each decoder layer attends again, with less entropy."""
    state, source, steps = 0.35 * german(noise=0.4), 0.7 * english(noise=0.2), []
    for _ in range(3):
        attention = build("multi_step", query_dim=SIZE, key_dim=SIZE)
        set_parameter(attention.layer.weight, torch.eye(SIZE))
        set_parameter(attention.layer.bias, 0.0)
        read, weights, _ = attention(state, source)
        steps.append(weights.dense())
        state = state + read
    return sentence_scene(
        torch.cat(steps),
        panels=["layer 1", "layer 2", "layer 3"],
        across=3,
        caption="Three decoder layers, each with its own attention. The output of a layer is added to the state, which "
        "is the query of the next one: the weights become sharper from layer to layer. W is the identity in every "
        "layer.",
    )
