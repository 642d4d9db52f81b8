"""The one literal table of mechanisms: `foci.build`, the contract tests, the docs and `foci list` come from it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from foci.errors import ConfigError, unknown_name
from foci.mechanisms.attention import Attention
from foci.mechanisms.heads import MultiHeadAttention, MultiStepAttention
from foci.mechanisms.memory import NeuralTuringMemory
from foci.mechanisms.pair import AttentionOverAttention, WordByWord
from foci.mechanisms.pool import AttentionPool, HierarchicalPool
from foci.mechanisms.structured import CRF
from foci.mechanisms.visual import CBAM, EfficientChannel, SpatialAttention, SqueezeExcitation

Family = Literal["attend", "pool", "pair", "memory", "map"]


@dataclass(frozen=True)
class Card:
    """One mechanism: how it is built, how it is called, and where its paper is written down.

    ``example`` holds keyword arguments of small distinct primes that build it. ``doc`` names the module, or the
    function ``module:function``, whose docstring is the paper; the properties below read it, so they cannot drift.
    """

    builder: Callable[..., nn.Module]
    family: Family
    example: Mapping[str, int | tuple[int, int]]
    doc: str

    @property
    def docstring(self) -> str:
        """The paper, as the source has it."""
        module, _, function = self.doc.partition(":")
        source = importlib.import_module(module)
        return inspect.getdoc(getattr(source, function) if function else source) or ""

    @property
    def summary(self) -> str:
        """What it does, in one sentence."""
        return self.docstring.split("\n\n")[0].replace("\n", " ")

    @property
    def equation(self) -> str:
        """The equations: the first indented block."""
        return inspect.cleandoc(self.docstring.split("\n\n")[1])

    @property
    def paper(self) -> str:
        """Title, authors, year and equation numbers."""
        return self.section("Paper")

    @property
    def citation(self) -> str:
        """Authors and year: what stands in the paper's first brackets."""
        found = re.search(r"\(([^()]*\d{4})\)", self.paper)
        return found.group(1) if found else ""

    @property
    def names(self) -> str:
        """The paper's symbols and ours."""
        return self.section("Names")

    @property
    def complexity(self) -> str:
        """What it costs."""
        return self.section("Complexity")

    @property
    def differs(self) -> str:
        """Every deviation from the paper."""
        return self.section("Differs")

    def section(self, title: str) -> str:
        """A section of the docstring as one line; a continuation is indented."""
        found = re.search(rf"^{title}: *(.*(?:\n +.*)*)", self.docstring, re.MULTILINE)
        return re.sub(r"\s*\n\s*", " ", found.group(1)).strip() if found else ""


_SCORES = "foci.mechanisms.scores"
_FOCUS = "foci.mechanisms.focus"

MECHANISMS: dict[str, Card] = {
    "dot": Card(partial(Attention, score="dot"), "attend", {"query_dim": 7, "key_dim": 7}, f"{_SCORES}.dot"),
    "scaled_dot": Card(
        partial(Attention, score="scaled_dot"), "attend", {"query_dim": 7, "key_dim": 7}, f"{_SCORES}.scaled_dot"
    ),
    "general": Card(
        partial(Attention, score="general"), "attend", {"query_dim": 5, "key_dim": 7}, f"{_SCORES}.general"
    ),
    "additive": Card(
        partial(Attention, score="additive"),
        "attend",
        {"query_dim": 5, "key_dim": 7, "hidden_dim": 11},
        f"{_SCORES}.additive",
    ),
    "concat": Card(
        partial(Attention, score="concat"),
        "attend",
        {"query_dim": 5, "key_dim": 7, "hidden_dim": 11},
        f"{_SCORES}.concat",
    ),
    "cosine": Card(partial(Attention, score="cosine"), "attend", {"query_dim": 7, "key_dim": 7}, f"{_SCORES}.cosine"),
    "location": Card(
        partial(Attention, score="location"),
        "attend",
        {"query_dim": 5, "key_dim": 7, "max_length": 31},
        f"{_SCORES}.location",
    ),
    "location_aware": Card(
        partial(Attention, score="location_aware"),
        "attend",
        {"query_dim": 5, "key_dim": 7, "hidden_dim": 11},
        f"{_SCORES}.location_aware",
    ),
    "hard": Card(
        partial(Attention, score="general", normalise="sample"),
        "attend",
        {"query_dim": 5, "key_dim": 7},
        "foci.functional.sample:categorical",
    ),
    "gumbel": Card(
        partial(Attention, score="general", normalise="gumbel"),
        "attend",
        {"query_dim": 5, "key_dim": 7},
        "foci.functional.sample:gumbel",
    ),
    "sparsemax": Card(
        partial(Attention, score="general", normalise="sparsemax"),
        "attend",
        {"query_dim": 5, "key_dim": 7},
        "foci.functional.sparse:sparsemax",
    ),
    "entmax": Card(
        partial(Attention, score="general", normalise="entmax15"),
        "attend",
        {"query_dim": 5, "key_dim": 7},
        "foci.functional.sparse:entmax15",
    ),
    "local_m": Card(
        partial(Attention, score="general", focus="local_m"),
        "attend",
        {"query_dim": 5, "key_dim": 7, "radius": 2},
        f"{_FOCUS}.local_m",
    ),
    "local_p": Card(
        partial(Attention, score="general", focus="local_p"),
        "attend",
        {"query_dim": 5, "key_dim": 7, "hidden_dim": 11, "radius": 2},
        f"{_FOCUS}.local_p",
    ),
    "sliding_window": Card(
        partial(Attention, score="scaled_dot", focus="sliding_window"),
        "attend",
        {"query_dim": 7, "key_dim": 7, "reach": (2, 3)},
        f"{_FOCUS}.sliding_window",
    ),
    "multi_head": Card(
        MultiHeadAttention,
        "attend",
        {"model_dim": 6, "num_heads": 2, "key_dim": 7},
        "foci.mechanisms.heads.multi_head",
    ),
    "multi_step": Card(
        MultiStepAttention, "attend", {"query_dim": 5, "key_dim": 7}, "foci.mechanisms.heads.multi_step"
    ),
    "pool": Card(AttentionPool, "pool", {"value_dim": 5, "hidden_dim": 7}, "foci.mechanisms.pool.pool"),
    "hierarchical": Card(
        HierarchicalPool, "pool", {"value_dim": 5, "hidden_dim": 7}, "foci.mechanisms.pool.hierarchical"
    ),
    "attention_over_attention": Card(
        AttentionOverAttention, "pair", {"value_dim": 5}, "foci.mechanisms.pair.attention_over_attention"
    ),
    "word_by_word": Card(WordByWord, "pair", {"model_dim": 5}, "foci.mechanisms.pair.word_by_word"),
    "ntm": Card(
        NeuralTuringMemory,
        "memory",
        {
            "input_dim": 5,
            "num_slots": 13,
            "slot_dim": 7,
            "num_read_heads": 2,
            "num_write_heads": 3,
            "shift_width": 3,
        },
        "foci.mechanisms.memory.ntm",
    ),
    "squeeze_excitation": Card(
        SqueezeExcitation, "map", {"channels": 7, "reduction": 2}, "foci.mechanisms.visual.squeeze_excitation"
    ),
    "efficient_channel": Card(EfficientChannel, "map", {"channels": 7}, "foci.mechanisms.visual.efficient_channel"),
    "cbam": Card(CBAM, "map", {"channels": 7, "reduction": 2, "kernel_size": 3}, "foci.mechanisms.visual.cbam"),
    "spatial": Card(SpatialAttention, "map", {"kernel_size": 3}, "foci.mechanisms.visual.spatial"),
    "crf": Card(CRF, "pool", {"num_tags": 5}, "foci.mechanisms.structured.crf"),
}

ALIASES = {
    "bahdanau": "additive",
    "mlp": "additive",
    "luong": "general",
    "bilinear": "general",
    "chorowski": "location_aware",
    "vaswani": "multi_head",
    "transformer": "multi_head",
    "reinforce": "hard",
    "entmax15": "entmax",
    "gehring": "multi_step",
    "han": "hierarchical",
    "yang": "hierarchical",
    "aoa": "attention_over_attention",
    "cui": "attention_over_attention",
    "rocktaschel": "word_by_word",
    "graves": "ntm",
    "se": "squeeze_excitation",
    "eca": "efficient_channel",
}


def card(name: str) -> Card:
    """The row of this name or alias; an unknown name is an error that lists the near ones."""
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in MECHANISMS:
        raise unknown_name("mechanism", name, [*MECHANISMS, *ALIASES])
    return MECHANISMS[key]


def build(name: str, /, **dims: object) -> nn.Module:
    """Make any mechanism by its catalogue name or alias.

    Example:
        >>> build("bahdanau", query_dim=3, key_dim=5, hidden_dim=7).score
        Additive(
          query_dim=3, key_dim=5
          (query_layer): Linear(in_features=3, out_features=7, bias=False)
          (key_layer): Linear(in_features=5, out_features=7, bias=False)
        )
    """
    row = card(name)
    try:
        return row.builder(**dims)
    except TypeError as error:
        known = ", ".join(inspect.signature(row.builder).parameters)
        given = ", ".join(f"{key}={value!r}" for key, value in dims.items())
        raise ConfigError(
            f"build({name!r}, {given}): {str(error).rpartition('__init__() ')[2]}. It takes: {known}. "
            f"For example: {', '.join(f'{key}={value}' for key, value in row.example.items())}."
        ) from error


def catalogue() -> dict[str, Card]:
    """All mechanisms by name."""
    return dict(MECHANISMS)


def markdown() -> str:
    """The table of mechanisms for the docs."""
    rows = ["| name | family | what it does | paper |", "|---|---|---|---|"]
    for name, row in MECHANISMS.items():
        rows.append(f"| `{name}` | {row.family} | {row.summary} | {row.citation} |")
    return "\n".join(rows) + "\n"
