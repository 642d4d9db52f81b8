"""Scenes of the scores: the same sentence with several score functions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foci.gallery.scene import Scene, build, fit, set_parameter
from foci.gallery.sentence import ALIGNED, ENGLISH, GERMAN, SIZE, english, german, sentence_scene, with_positions


def dot() -> Scene:
    """Words that mean the same."""
    attention = build("dot", query_dim=SIZE, key_dim=SIZE)
    return sentence_scene(
        attention(german(), english()).weights.dense()[0],
        "Each German word attends to the English words with the largest dot product. Content alone does not "
        "distinguish equal words: `der` and `die` attend to all three `the` equally. The word vectors are made up.",
    )


def scaled_dot() -> Scene:
    """The same as dot, softer."""
    attention = build("scaled_dot", query_dim=SIZE, key_dim=SIZE)
    return sentence_scene(
        attention(german(), english()).weights.dense()[0],
        f"The vectors of the picture for `dot`. Scores are divided by the square root of the vectors' size, {SIZE}, "
        "so the same matches get less of the weight.",
    )


def general() -> Scene:
    """Two languages in spaces of different sizes."""
    size = 13
    torch.manual_seed(0)
    other_space = nn.init.orthogonal_(torch.empty(SIZE, size))
    attention = build("general", query_dim=SIZE, key_dim=size)
    set_parameter(attention.score.weight, other_space)
    return sentence_scene(
        attention(german(), english() @ other_space).weights.dense()[0],
        f"The English vectors are in another space, of {size} numbers instead of {SIZE}. W, set by hand, maps "
        "one space to the other.",
    )


def additive() -> Scene:
    """A fitted network with positions."""
    query, key = with_positions(german()), with_positions(english())
    attention = build("additive", query_dim=query.shape[-1], key_dim=key.shape[-1], hidden_dim=16)
    return _fitted(
        attention,
        query,
        key,
        "Query and key also encode their position in the sentence, as the states of a recurrent network do. So `der` "
        "and `die` attend to different `the`. The network was fitted to this one sentence in 100 steps.",
    )


def concat() -> Scene:
    """A fitted network without positions."""
    attention = build("concat", query_dim=SIZE, key_dim=SIZE, hidden_dim=16)
    return _fitted(
        attention,
        german(noise=0.0),
        english(noise=0.0),
        "The same network as in `additive`, written as one matrix over the concatenation of both vectors, but without "
        "positions: equal words always have equal weights. Fitted to this one sentence in 100 steps.",
    )


def cosine() -> Scene:
    """Long and short keys."""
    lengths = torch.tensor([1, 3, 1, 1, 1, 3, 1, 1, 1, 1, 3, 1]) / 2
    query, key = german(noise=0.2), english(noise=0.2) * lengths.unsqueeze(-1)
    by_length, by_angle = (build(name, query_dim=SIZE, key_dim=SIZE) for name in ("dot", "cosine"))
    set_parameter(by_angle.score.log_strength, torch.tensor(5.0).log())
    return sentence_scene(
        torch.cat([by_length(query, key).weights.dense(), by_angle(query, key).weights.dense()]),
        panels=["dot: long keys score highest", "cosine: only the angle matters"],
        caption="Three of the English words (the first `the`, `man` and `his`) have vectors three times as long as the "
        "others. The cosine does not depend on it. Its strength is set to 5 by hand.",
    )


def location() -> Scene:
    """Positions without content."""
    query, key = with_positions(torch.zeros_like(german())), english()
    attention = build("location", query_dim=query.shape[-1], key_dim=SIZE, max_length=len(ENGLISH))
    return _fitted(
        attention,
        query,
        key,
        "The query encodes only the position in the German sentence, and the words of the source are not used: W "
        "was fitted in 100 steps to attend to positions, for sentences with the word order of this one.",
    )


def location_aware() -> Scene:
    """Frames of speech that sound alike."""
    letters, frames = list("hello"), torch.tensor([2, 3, 4, 4, 4])
    sounds = 2 * torch.eye(4)[[0, 1, 2, 2, 3]]
    query, key = sounds.unsqueeze(0), sounds.repeat_interleave(frames, dim=0).unsqueeze(0)
    letter_of = torch.arange(5).repeat_interleave(frames)
    wanted = (letter_of == torch.arange(5).unsqueeze(-1)).unsqueeze(0)
    return Scene(
        weights=torch.cat([_writer(name, query, key, wanted) for name in ("additive", "location_aware")]),
        rows=letters,
        columns=[letters[number] for number in letter_of],
        panels=["additive: content alone", "location_aware: content and previous weights"],
        row_axis="written letter",
        column_axis="frame of speech",
        across=1,
        caption="Seventeen frames of speech are transcribed letter by letter. The two l sound the same: by content "
        "alone the weights are on both, but with the previous weights as input they move on. Both were fitted in "
        "100 steps.",
    )


def _writer(name: str, query: Tensor, key: Tensor, wanted: Tensor) -> Tensor:
    torch.manual_seed(3)
    attention = build(name, query_dim=query.shape[-1], key_dim=key.shape[-1], hidden_dim=12)
    fit(attention, lambda: -attention(query, key).weights.mass(wanted).log().mean())
    weights: Tensor = attention(query, key).weights.dense()
    return weights


def _fitted(attention: nn.Module, query: Tensor, key: Tensor, caption: str) -> Scene:
    torch.manual_seed(0)
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.3)
    rows = torch.arange(len(GERMAN))
    fit(attention, lambda: -attention(query, key).weights.dense()[0, rows, ALIGNED].log().mean())
    return sentence_scene(attention(query, key).weights.dense()[0], caption)
