"""`foci explain`: its symbols stand in the equation, its calls and its code run, with the shapes it names."""

import inspect
import re

import pytest
import torch

from foci.builders import build
from foci.catalog import MECHANISMS
from foci.gallery import worked_example

SIZES = {"B": 2, "L": 3, "S": 5, "R": 3, "N": 2, "T": 3, "V": 13, "W": 5, "1": 1, "2": 2, "4": 4}
"""Sizes of the letters that no catalog row sets; the others are those of the row's example."""
OF_EXAMPLE = {
    "D": ("value_dim", "model_dim", "input_dim"),
    "Dq": ("query_dim",),
    "Dk": ("key_dim",),
    "K": ("num_tags",),
    "C": ("channels",),
    "H": ("num_heads",),
    "N": ("num_levels",),
    "P": ("num_points", "position_dim"),
    "M": ("slot_dim",),
}


def sizes_of(card):
    found = dict(SIZES)
    for letter, names in OF_EXAMPLE.items():
        for name in names:
            if name in card.example:
                found[letter] = card.example[name]
    if card.family == "map":
        found |= {"H": 3, "C": card.example.get("channels", 7)}
    if card.family == "memory":
        found["R"] = card.example["num_read_heads"]
    return found


def shapes_in(call, sizes):
    """What the text says of shapes: "query (B, L, Dq)" -> {"query": (2, 3, 5)}."""
    shapes = {}
    for names, letters in re.findall(r"([\w.]+(?: and [\w.]+)*) \(((?:[\w·]+, )+[\w·]+)\)", call.partition("\n")[2]):
        shape = []
        for letter in letters.split(", "):
            product = 1
            for factor in letter.split("·"):
                product *= sizes[factor]
            shape.append(product)
        shapes |= dict.fromkeys(names.split(" and "), tuple(shape))
    return shapes


def looked_up(result, name):
    for part in name.split("."):
        result = getattr(result, part)
    return tuple(result.shape)


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_symbol_occurs_in_the_equation(name):
    card = MECHANISMS[name]
    for symbols, meaning in card.symbols:
        assert meaning, symbols
        for symbol in symbols.split(" and "):
            assert re.search(rf"(?<![A-Za-z0-9]){re.escape(symbol)}(?![A-Za-z0-9])", card.equation), (
                f"{symbol!r}: {meaning}"
            )


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_call_runs_with_the_shapes_it_names(name):
    card = MECHANISMS[name]
    call = worked_example.call(name, card)
    module = build(name, **card.example)
    stated = re.match(r"\w+\(([^)]*)\)", call)[1]
    parameters = inspect.signature(module.forward).parameters.values()
    found = [parameter.name + ("=None" if parameter.default is None else "") for parameter in parameters]
    by_name = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    if by_name:
        # Of many options of a call, those that models pass are stated.
        named = [one for one in stated.partition("*, ")[2].split(", ") if one in found[-len(by_name) :]]
        assert named
        found = [*found[: -len(by_name)], "*", *named]
    assert stated.split(", ") == found
    shapes = shapes_in(call, sizes_of(card))
    inputs = {
        argument: torch.ones(shapes[argument], dtype=torch.bool)
        if "mask" in argument
        else torch.randn(shapes[argument])
        for argument in (part.removesuffix("=None") for part in found)
        if argument not in ("state", "*", "levels")
    }
    result = module(**inputs)
    if card.family == "memory":
        assert tuple(result[0].shape) == shapes.pop("output")
    for what in shapes.keys() - inputs.keys():
        assert looked_up(result, what) == shapes[what], what
    assert card.family == "memory" or {"output", "weights"} <= shapes.keys()


SIZES_AND_PARTS = {"model_dim", "num_heads", "head_dim", "key_dim", "value_dim", "score", "scale", "normalize"}
SIZES_AND_PARTS |= {"norm_epsilon", "dropout", "keep_weights", "bias", "output_bias"}


def test_multi_head_explains_each_of_its_options():
    card = MECHANISMS["multi_head"]
    options = inspect.signature(card.builder).parameters.keys() - SIZES_AND_PARTS
    assert {"rotary", "relative", "qk_norm", "score_cap", "sink", "gate", "window"} < options
    assert options <= {*re.findall(r"\w+", card.equation)}
    assert {option for option in ("YaRN", "Transformer-XL", "Shaw", "T5", "GQA") if option not in card.paper} == set()
    for word in ("rotary", "relative", "grouped keys", "norms", "caps", "sinks", "gates", "windows"):
        assert word in card.summary


def test_a_document_has_sentences_and_a_tagger_tags():
    words = dict(worked_example.numbers("hierarchical", MECHANISMS["hierarchical"]))
    assert words["value"].shape == (1, 2, 3, 5)
    assert words["weights.sentences.dense()"].shape == (1, 2)
    assert words["masked.weights.dense()"][0, 4:].tolist() == [0.0, 0.0]
    assert words["weights.dense()"].sum().item() == pytest.approx(1.0)
    tags = dict(worked_example.numbers("crf", MECHANISMS["crf"]))
    assert tags["weights.dense()"].sum(-1).tolist() == [pytest.approx([1.0] * 5)]
