"""The one literal table of mechanisms: `foci.build`, the contract tests, the docs and `foci list` come from it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from foci.errors import unknown_name
from foci.functional.rotary_options import Rotary
from foci.mechanisms.attention import Attention
from foci.mechanisms.heads import ConditionalAttention, DeformableAttention, MultiHeadAttention, MultiStepAttention
from foci.mechanisms.memory import NeuralTuringMemory
from foci.mechanisms.pair import AttentionOverAttention, WordByWord
from foci.mechanisms.pool import AttentionPool, HierarchicalPool
from foci.mechanisms.structured import CRF
from foci.mechanisms.visual import CBAM, EfficientChannel, SpatialAttention, SqueezeExcitation
from foci.names import SCORE_ALIASES, Family

_ARCHIVES = {"arXiv": "https://arxiv.org/abs/", "ACL": "https://aclanthology.org/", "doi": "https://doi.org/"}


@dataclass(frozen=True)
class Card:
    """One mechanism: how it is built, how it is called, and where its paper is written down.

    ``example`` holds keyword arguments of small distinct primes that build it. ``doc`` names the module, or the
    function ``module:function``, whose docstring describes the paper; the properties below are parsed from it.
    ``variants`` are its options by short names: keyword arguments that are added to those of the example, or replace
    them. The docs list them, and the contract tests run over all of them.
    """

    builder: Callable[..., nn.Module]
    family: Family
    example: Mapping[str, int | tuple[int, int]]
    doc: str
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def arguments(self, variant: str | None = None) -> dict[str, Any]:
        """Return the keyword arguments that build the example, or one of its variants.

        Raises:
            UnknownNameError: there is no such variant.
        """
        if variant is not None and variant not in self.variants:
            raise unknown_name("variant", variant, self.variants)
        return {**self.example, **(self.variants[variant] if variant else {})}

    @property
    def docstring(self) -> str:
        """The docstring that describes the paper."""
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
        """Authors and year, as in the first brackets of `paper`."""
        found = re.search(r"\(([^()]*\d{4})\)", self.paper)
        return found.group(1) if found else ""

    @property
    def link(self) -> str:
        """The address of the paper: that of the first arXiv, ACL or DOI number in its entry."""
        found = re.search(r"\b(arXiv|ACL|doi):(\S*[\w])", self.paper)
        return f"{_ARCHIVES[found.group(1)]}{found.group(2)}" if found else ""

    @property
    def names(self) -> str:
        """The paper's symbols and ours."""
        return self.section("Names")

    @property
    def symbols(self) -> list[tuple[str, str]]:
        """The symbols of the equation, each with what it is called in the code."""
        pairs = (pair.split(" = ", 1) for pair in re.split(r", (?=[^,]* = )", self.names.rstrip(".")))
        return [(symbol, meaning) for symbol, meaning in pairs]

    @property
    def complexity(self) -> str:
        """What it costs."""
        return self.section("Complexity")

    @property
    def differs(self) -> str:
        """Every deviation from the paper."""
        return self.section("Differs")

    def section(self, title: str) -> str:
        """Return a section of the docstring as one line; a continuation is indented."""
        found = re.search(rf"^{title}: *(.*(?:\n +.*)*)", self.docstring, re.MULTILINE)
        return re.sub(r"\s*\n\s*", " ", found.group(1)).strip() if found else ""


_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "additive": {"score": "additive", "hidden_dim": 11},
    "argmax": {"normalize": "hard"},
    "causal": {"focus": "causal"},
    "dropout": {"dropout": 0.3},
    "entmax15": {"normalize": "entmax15"},
    "local_m": {"focus": "local_m", "radius": 2},
    "local_p": {"focus": "local_p", "radius": 2},
    "location_aware": {"score": "location_aware", "hidden_dim": 11},
    "median_window": {"focus": "median_window", "window": (2, 1)},
    "one_sided": {"window": (3, 0)},
    "sample": {"normalize": "sample"},
    "sharpening": {"sharpening": 2.0},
    "sigmoid": {"normalize": "sigmoid"},
    "sliding_window": {"focus": "sliding_window", "window": (2, 1)},
    "sparsemax": {"normalize": "sparsemax"},
}
"""The variants of the rows of `foci.Attention`."""


def _attention(doc: str, variants: str, example: Mapping[str, Any], score: str = "general", **fixed: str) -> Card:
    """Return the row of an attention with this score and other parts, and with the variants of these names."""
    builder = partial(Attention, score=score, **fixed)  # type: ignore[arg-type]
    return Card(builder, "attend", example, f"foci.{doc}", {name: _VARIANTS[name] for name in variants.split()})


_ALIKE = {"query_dim": 7, "key_dim": 7}
_SIZES = {"query_dim": 5, "key_dim": 7}
_HIDDEN = {**_SIZES, "hidden_dim": 11}
_GROUPED = {"model_dim": 12, "num_heads": 6, "num_key_heads": 3}

MECHANISMS: dict[str, Card] = {
    "dot": _attention("mechanisms.scores.dot", "sharpening causal", _ALIKE, score="dot"),
    "scaled_dot": _attention("mechanisms.scores.scaled_dot", "sharpening causal dropout", _ALIKE, score="scaled_dot"),
    "general": _attention("mechanisms.scores.general", "sharpening sigmoid dropout", _SIZES),
    "additive": _attention(
        "mechanisms.scores.additive",
        "sharpening sigmoid causal sliding_window median_window dropout",
        _HIDDEN,
        score="additive",
    ),
    "concat": _attention("mechanisms.scores.concat", "sharpening entmax15", _HIDDEN, score="concat"),
    "cosine": _attention("mechanisms.scores.cosine", "sharpening sparsemax", _ALIKE, score="cosine"),
    "location": _attention(
        "mechanisms.scores.location", "sharpening sigmoid", _SIZES | {"max_length": 31}, score="location"
    ),
    "location_aware": _attention(
        "mechanisms.scores.location_aware",
        "sharpening sigmoid median_window sample dropout",
        _HIDDEN,
        score="location_aware",
    ),
    "hard": _attention("functional.sample:categorical", "argmax additive local_m", _SIZES, normalize="sample"),
    "gumbel": _attention("functional.sample:gumbel", "sharpening additive", _SIZES, normalize="gumbel"),
    "sparsemax": _attention(
        "functional.sparse:sparsemax", "additive causal location_aware", _SIZES, normalize="sparsemax"
    ),
    "entmax": _attention("functional.sparse:entmax15", "additive local_p", _SIZES, normalize="entmax15"),
    "local_m": _attention(
        "mechanisms.focus.local_m", "additive sharpening sparsemax dropout", _SIZES | {"radius": 2}, focus="local_m"
    ),
    "local_p": _attention(
        "mechanisms.focus.local_p", "additive sharpening sigmoid dropout", _HIDDEN | {"radius": 2}, focus="local_p"
    ),
    "sliding_window": _attention(
        "mechanisms.focus.sliding_window",
        "additive sharpening one_sided",
        _ALIKE | {"window": (2, 3)},
        score="scaled_dot",
        focus="sliding_window",
    ),
    "multi_head": Card(
        MultiHeadAttention,
        "attend",
        {"model_dim": 6, "num_heads": 2, "key_dim": 7},
        "foci.mechanisms.heads.multi_head",
        {
            "causal": {"causal": True},
            "window": {"window": (2, 1)},
            "causal_window": {"causal": True, "window": (2, 0)},
            "grouped": _GROUPED,
            "multi_query": {"num_key_heads": 1},
            "rotary": {"model_dim": 12, "rotary": True},
            "rotary_half": {"head_dim": 10, "rotary": Rotary(base=100.0, layout="half", rotated_dim=6)},
            "rotary_linear": {"head_dim": 6, "rotary": Rotary(scaling="linear", factor=3.0)},
            "rotary_ntk": {"head_dim": 6, "rotary": Rotary(layout="half", scaling="ntk", factor=3.0)},
            "rotary_yarn": {
                "head_dim": 6,
                "rotary": Rotary(base=50.0, scaling="yarn", factor=3.0, original_length=97, beta_fast=7.0),
            },
            "rotary_llama3": {
                "head_dim": 6,
                "rotary": Rotary(base=50.0, layout="half", scaling="llama3", factor=3.0, original_length=23),
            },
            "alibi": {"alibi": True},
            "alibi_causal": {"alibi": True, "causal": True},
            "t5": {"relative": "t5"},
            "t5_causal": {"relative": "t5", "causal": True},
            "shaw": {"relative": "shaw"},
            "transformer_xl": {"relative": "transformer_xl"},
            "head_dim": {"head_dim": 5},
            "qk_norm": {"qk_norm": True},
            "qk_norm_rms": {"qk_norm": "rms", "norm_epsilon": 0.01},
            "qk_norm_layer": {"qk_norm": "layer"},
            "scale": {"scale": 0.7},
            "score_cap": {"score_cap": 1.5},
            "sink": {"sink": "learned"},
            "off_by_one": {"sink": "zero"},
            "gate": {"gate": "elementwise"},
            "gate_headwise": {"gate": "headwise"},
            "cosine": {"score": "cosine"},
            "sparsemax": {"normalize": "sparsemax"},
            "grouped_sparsemax": {**_GROUPED, "normalize": "sparsemax"},
            "keep_weights": {"keep_weights": True},
            "grouped_keep_weights": {**_GROUPED, "keep_weights": True},
            "dropout": _VARIANTS["dropout"],
            "without_bias": {"bias": False},
            "output_bias": {"bias": False, "output_bias": True},
            "modern": {
                **_GROUPED,
                "head_dim": 4,
                "causal": True,
                "window": (3, 0),
                "rotary": Rotary(layout="half"),
                "qk_norm": "rms",
                "score_cap": 5.0,
                "sink": "learned",
                "gate": "elementwise",
                "bias": False,
            },
        },
    ),
    "multi_step": Card(
        MultiStepAttention,
        "attend",
        {"query_dim": 5, "key_dim": 7},
        "foci.mechanisms.heads.multi_step",
        {"scale_by_length": {"scale_by_length": True}},
    ),
    "conditional": Card(
        ConditionalAttention,
        "attend",
        {"model_dim": 6, "num_heads": 2, "key_dim": 7, "position_dim": 5},
        "foci.mechanisms.heads.conditional",
    ),
    "deformable": Card(
        DeformableAttention,
        "attend",
        {"model_dim": 6, "num_heads": 2, "num_levels": 1, "num_points": 3, "key_dim": 7},
        "foci.mechanisms.heads.deformable",
    ),
    "pool": Card(
        AttentionPool,
        "pool",
        {"value_dim": 5, "hidden_dim": 7},
        "foci.mechanisms.pool.pool",
        {"several_queries": {"num_queries": 3}},
    ),
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
        {"learned_memory": {"initial_memory": "learned"}, "wide_shift": {"shift_width": 5}},
    ),
    "squeeze_excitation": Card(
        SqueezeExcitation, "map", {"channels": 7, "reduction": 2}, "foci.mechanisms.visual.squeeze_excitation"
    ),
    "efficient_channel": Card(
        EfficientChannel,
        "map",
        {"channels": 7},
        "foci.mechanisms.visual.efficient_channel",
        {"kernel_size": {"kernel_size": 5}},
    ),
    "cbam": Card(CBAM, "map", {"channels": 7, "reduction": 2, "kernel_size": 3}, "foci.mechanisms.visual.cbam"),
    "spatial": Card(SpatialAttention, "map", {"kernel_size": 3}, "foci.mechanisms.visual.spatial"),
    "crf": Card(CRF, "pool", {"num_tags": 5}, "foci.mechanisms.structured.crf"),
}

ALIASES = {
    **SCORE_ALIASES,
    "vaswani": "multi_head",
    "transformer": "multi_head",
    "reinforce": "hard",
    "entmax15": "entmax",
    "gehring": "multi_step",
    "meng": "conditional",
    "zhu": "deformable",
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
    """Return the row of this name or alias; an unknown name is an error that lists the near ones."""
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in MECHANISMS:
        raise unknown_name("mechanism", name, [*MECHANISMS, *ALIASES])
    return MECHANISMS[key]


def as_code(arguments: Mapping[str, object]) -> str:
    """Return keyword arguments as Python writes them.

    Example:
        >>> as_code({"hidden_dim": 7, "score": "dot"})
        "hidden_dim=7, score='dot'"
    """
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def list_mechanisms() -> dict[str, Card]:
    """Return all mechanisms by name."""
    return dict(MECHANISMS)


def markdown() -> str:
    """Return the table of mechanisms for the docs."""
    rows = ["| name | family | what it does | paper |", "|---|---|---|---|"]
    for name, row in MECHANISMS.items():
        rows.append(f"| `{name}` | {row.family} | {row.summary} | [{row.citation}]({row.link}) |")
    return "\n".join(rows) + "\n"
