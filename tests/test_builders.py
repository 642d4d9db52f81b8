# pyright: reportUnnecessaryTypeIgnoreComment=error
"""What a type checker knows of foci: mypy checks this file in `make types`, pytest what happens at run time.

A line with ``type: ignore[…]`` is a mistake that a type checker has to see: strict mypy reports each of these comments
where there is nothing to ignore, and so does pyright (tests/users).
"""

from typing import assert_type, get_args

import pytest
import torch

import foci
from foci import names
from foci.errors import ConfigError, UnknownNameError
from foci.functional.attend import NORMALIZERS
from foci.mechanisms.focus import FOCUSES
from foci.mechanisms.heads.head_options import NORMS
from foci.mechanisms.scores import SCORES
from foci.models.options.attention import Focus


def test_a_misspelled_part_is_a_type_error() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'general'"):
        foci.Attention(3, 5, score="genral")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="Did you mean 'entmax15'"):
        foci.Attention(3, 5, normalize="entmax1")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="Did you mean 'local_p'"):
        foci.build("additive", query_dim=3, key_dim=5, focus="local-p")  # type: ignore[call-overload]


def test_a_misspelled_mechanism_or_argument_is_a_type_error() -> None:
    with pytest.raises(UnknownNameError, match="additive"):
        foci.build("aditive", query_dim=3, key_dim=5)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="It takes: query_dim"):
        foci.build("additive", query_size=3)  # type: ignore[call-overload]
    with pytest.raises(AttributeError, match="attned"):
        foci.attned  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(AttributeError, match="trainer"):
        foci.training.trainer  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(AttributeError, match="sparsemx"):
        foci.functional.sparse.sparsemx  # type: ignore[attr-defined] # noqa: B018


def test_a_mechanism_by_name_has_the_type_of_its_class() -> None:
    heads = foci.build("multi_head", model_dim=6, num_heads=2)
    assert_type(heads, foci.MultiHeadAttention)
    assert_type(heads.empty_cache(1), foci.KeyValueCache)
    assert_type(heads.empty_cache(1, 7), foci.PreallocatedCache)
    window = foci.MultiHeadAttention(8, 2, causal=True, window=(3, 0), rotary=foci.Rotary(layout="interleaved"))
    assert_type(window.empty_cache(1, sliding=True), foci.SlidingCache)
    assert_type(foci.build("luong", query_dim=3, key_dim=5), foci.Attention)
    assert_type(foci.build("graves", input_dim=3), foci.NeuralTuringMemory)
    assert_type(foci.build("crf", num_tags=3), foci.CRF)


def test_a_call_of_a_mechanism_has_types() -> None:
    x = torch.ones(1, 3, 5)
    attended = foci.build("additive", query_dim=5, key_dim=5)(x, x)
    assert_type(attended, foci.AttentionOutput)
    assert_type(attended.weights.topk(2)[1], torch.Tensor)
    assert_type(foci.build("word_by_word", model_dim=5)(x, x), foci.PairOutput)
    assert_type(foci.NeuralTuringMemory(5)(x[:, 0])[1], foci.MemoryState)
    with pytest.raises(AttributeError, match=r"weights\.dense\(\)\.sum"):
        attended.weights.sum()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="masks"):
        foci.build("pool", value_dim=5)(x, masks=None)  # type: ignore[call-arg]


def test_packages_are_there_after_import_foci() -> None:
    assert_type(foci.training.options.TrainingOptions(max_steps=2).precision, foci.training.options.Precision)
    assert_type(foci.tasks.TASKS["tag"].summary, str)


def test_the_names_of_the_types_are_those_of_the_tables() -> None:
    assert {*get_args(names.ScoreName)} == {*SCORES, *names.SCORE_ALIASES}
    assert {*get_args(names.NormalizerName)} == {*NORMALIZERS, *names.NORMALIZER_ALIASES}
    assert {*get_args(names.ScoreAlias)} == names.SCORE_ALIASES.keys()
    assert {*get_args(names.NormalizerAlias)} == names.NORMALIZER_ALIASES.keys()
    assert {*get_args(names.FocusName)} == FOCUSES.keys()
    assert {*get_args(names.NormName)} == NORMS.keys()
    assert {*get_args(Focus)} < FOCUSES.keys()
    assert {*get_args(names.Family)} == {card.family for card in foci.list_mechanisms().values()}
