"""Options that all layers of a Transformer share; importing them does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from foci.errors import ConfigError, check_sizes, check_window
from foci.functional.rotary_options import Rotary
from foci.layers.several_heads import HeadOptions
from foci.names import DotScoreName, NormalizerName
from foci.options import OwnPart

Block = TypeVar("Block", bound="BlockOptions")


@dataclass(frozen=True, kw_only=True)
class BlockOptions(HeadOptions):
    """Options that all layers of a Transformer share; those of heads are of self-attention."""

    model_dim: int = 512
    """Size of every position."""
    num_heads: int = 8
    """Heads of every attention."""
    hidden_dim: int = 2048
    """Inner size of the feed-forward networks."""
    norm: Literal["post", "pre"] = "post"
    """Position of the norm in a sublayer: after the residual connection (2017) or before the computation."""
    dropout: float = 0.0
    """Dropout of embeddings and of every sublayer's output."""
    attention_dropout: float = 0.0
    """Dropout of the attention weights."""
    feed_forward_dropout: float = 0.0
    """Dropout between the two layers of the feed-forward networks."""
    activation: Literal["relu", "gelu", "relu2"] = "relu"
    """Activation of the feed-forward networks; relu2 is the square of ReLU."""
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "shaw", "transformer_xl"] = "sinusoidal"
    """Positions: sinusoidal or learned ones are added to the embeddings, the others belong to self-attention: rotations
    (rotary), or a bias by distance (alibi, t5, shaw, transformer_xl)."""
    rotary: Rotary = field(default_factory=Rotary)
    """Base, layout and scaling of the rotations, for positions = rotary."""
    score: DotScoreName | OwnPart = "scaled_dot"
    """Score function of self-attention."""
    normalize: NormalizerName | OwnPart = "softmax"
    """Normalizer of self-attention."""
    focus: OwnPart | None = None
    """Focus of self-attention, of one's own, for encoders."""
    after: OwnPart | None = None
    """Stage after reading of self-attention, such as a gate."""
    window: tuple[int, int] | None = None
    """Positions before and after its own that self-attention covers, (left, right). Default: all positions."""
    global_every: int | None = None
    """Every n-th layer covers all positions, and the others the window (Gemma 2: 2, Gemma 3: 6). Default: all layers
    have the window."""
    bias: bool = True
    """Give the projections of the attentions and the layers of the feed-forward networks a bias."""
    rms_norm: bool = False
    """Normalize by the root mean square alone (RMSNorm) instead of LayerNorm."""
    zero_residual: bool = False
    """Start the layers that end a sublayer at 0, so that a new stack with norm = pre is the identity."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_window(owner, self.window, bounded=True)
        check_sizes(owner, global_every=self.global_every)
        if self.global_every is not None and self.window is None:
            raise ConfigError(
                f"{owner}: global_every is {self.global_every} without a window, expected one for the other layers."
            )
        head_dim = self.check_heads(self.model_dim, self.num_heads)
        if self.positions == "rotary" and self.rotary.rotated_dim is None and head_dim % 2:
            raise ConfigError(
                f"{owner}: rotary positions with heads of {head_dim} features, expected an even number. Change "
                "model_dim, num_heads or head_dim, or set rotary.rotated_dim."
            )
        if self.positions == "rotary":
            self.rotary.turned_dim(head_dim)
        elif self.rotary != Rotary():
            raise ConfigError(
                f"{owner}: rotary is {self.rotary} with positions {self.positions!r}, expected positions 'rotary'."
            )

    @property
    def relative(self) -> bool:
        """Whether self-attention adds the positions itself."""
        return self.positions not in ("sinusoidal", "learned")

    @property
    def by_distance(self) -> bool:
        """Whether a step has to know how far each position is: for a bias, or for the windows of some layers."""
        return self.positions in ("alibi", "t5", "shaw", "transformer_xl") or self.global_every is not None

    def of_layer(self: Block, number: int) -> Block:
        """Return the options of this layer, counted from 0: every ``global_every``-th has no window."""
        if self.global_every is None:
            return self
        is_global = (number + 1) % self.global_every == 0
        return replace(self, window=None if is_global else self.window, global_every=None)
