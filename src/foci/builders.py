"""`foci.build`: any mechanism by its name, with the arguments of its class for editors and type checkers.

`make docs` writes the overloads from `foci.catalog.MECHANISMS`: each row with its aliases
and the signature of its class.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from torch import nn

from foci.catalog import as_code, card
from foci.errors import ConfigError

if TYPE_CHECKING:
    from jaxtyping import Bool
    from torch import Tensor

    from foci.functional.attend import Window
    from foci.functional.rotary_options import Rotary
    from foci.mechanisms.attention import Attention
    from foci.mechanisms.heads import ConditionalAttention, DeformableAttention, MultiHeadAttention, MultiStepAttention
    from foci.mechanisms.heads.relative import RelativeBias
    from foci.mechanisms.memory import NeuralTuringMemory
    from foci.mechanisms.memory.ntm import InitialMemory
    from foci.mechanisms.pair import AttentionOverAttention, WordByWord
    from foci.mechanisms.parts import Focus, Normalizer, Score, Stage
    from foci.mechanisms.pool import AttentionPool, HierarchicalPool
    from foci.mechanisms.structured import CRF
    from foci.mechanisms.visual import CBAM, EfficientChannel, SpatialAttention, SqueezeExcitation
    from foci.names import (
        DotScoreName,
        FocusName,
        GateName,
        NormalizerName,
        NormName,
        RelativeName,
        ScoreName,
        SinkName,
    )


# fmt: off

@overload
def build(
    name: Literal["dot", "scaled_dot", "general", "luong", "bilinear", "additive", "bahdanau", "mlp", "concat",
    "cosine", "location", "location_aware", "chorowski", "hard", "reinforce", "gumbel", "sparsemax", "entmax",
    "entmax15", "local_m", "local_p", "sliding_window"], /, *, query_dim: int | None = None, key_dim: int | None = None,
    hidden_dim: int | None = None, score: ScoreName | Score = ..., normalize: NormalizerName | Normalizer = ...,
    focus: FocusName | Focus = ..., sharpening: float = 1.0, dropout: float = 0.0, radius: int | None = None,
    window: tuple[int, int] | None = None, max_length: int | None = None, after: Stage | None = None
) -> Attention: ...
@overload
def build(
    name: Literal["multi_head", "vaswani", "transformer"], /, *, model_dim: int, num_heads: int,
    head_dim: int | None = None, key_dim: int | None = None, value_dim: int | None = None,
    num_key_heads: int | None = None, causal: bool = False, window: Window | None = None, rotary: bool | Rotary = False,
    alibi: bool = False, relative: RelativeName | RelativeBias | None = None, qk_norm: bool | NormName = False,
    norm_epsilon: float = 1e-06, score: DotScoreName | Score = "scaled_dot", scale: float | None = None,
    score_cap: float | None = None, normalize: NormalizerName | Normalizer = "softmax", sink: SinkName | None = None,
    gate: GateName | None = None, dropout: float = 0.0, keep_weights: bool = False, bias: bool = True,
    output_bias: bool | None = None, focus: Focus | None = None, after: Stage | None = None
) -> MultiHeadAttention: ...
@overload
def build(
    name: Literal["multi_step", "gehring"], /, *, query_dim: int, key_dim: int, scale_by_length: bool = False
) -> MultiStepAttention: ...
@overload
def build(
    name: Literal["conditional", "meng"], /, *, model_dim: int, num_heads: int, key_dim: int | None = None,
    position_dim: int | None = None
) -> ConditionalAttention: ...
@overload
def build(
    name: Literal["deformable", "zhu"], /, *, model_dim: int, num_heads: int, num_levels: int = 1, num_points: int = 4,
    key_dim: int | None = None
) -> DeformableAttention: ...
@overload
def build(
    name: Literal["pool"], /, *, value_dim: int, hidden_dim: int | None = None, num_queries: int | None = None
) -> AttentionPool: ...
@overload
def build(
    name: Literal["hierarchical", "han", "yang"], /, *, value_dim: int, hidden_dim: int | None = None,
    sentence_encoder: Callable[[Tensor, Tensor], Tensor] | None = None, sentence_dim: int | None = None
) -> HierarchicalPool: ...
@overload
def build(
    name: Literal["attention_over_attention", "aoa", "cui"], /, *, value_dim: int | None = None
) -> AttentionOverAttention: ...
@overload
def build(
    name: Literal["word_by_word", "rocktaschel"], /, *, model_dim: int
) -> WordByWord: ...
@overload
def build(
    name: Literal["ntm", "graves"], /, *, input_dim: int, num_slots: int = 128, slot_dim: int = 20,
    num_read_heads: int = 1, num_write_heads: int = 1, shift_width: int = 3, initial_memory: InitialMemory = "constant"
) -> NeuralTuringMemory: ...
@overload
def build(
    name: Literal["squeeze_excitation", "se"], /, *, channels: int, reduction: int = 16
) -> SqueezeExcitation: ...
@overload
def build(
    name: Literal["efficient_channel", "eca"], /, *, channels: int, kernel_size: int | None = None
) -> EfficientChannel: ...
@overload
def build(
    name: Literal["cbam"], /, *, channels: int, reduction: int = 16, kernel_size: int = 7
) -> CBAM: ...
@overload
def build(
    name: Literal["spatial"], /, *, kernel_size: int = 7
) -> SpatialAttention: ...
@overload
def build(
    name: Literal["crf"], /, *, num_tags: int, allowed_transitions: Bool[Tensor, 'K K'] | None = None,
    allowed_start: Bool[Tensor, ' K'] | None = None, allowed_end: Bool[Tensor, ' K'] | None = None
) -> CRF: ...
# fmt: on
def build(name: str, /, **dims: Any) -> nn.Module:
    """Make any mechanism by its catalog name or alias.

    Type checkers know the names, and of each the class and its arguments. A name that is only known when the program
    runs is looked up with `foci.catalog.card`, whose ``builder`` takes the same arguments.

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
        raise ConfigError(
            f"build({name!r}, {as_code(dims)}): {str(error).rpartition('__init__() ')[2]}. It takes: {known}. "
            f"For example: {as_code(row.example)}."
        ) from error
