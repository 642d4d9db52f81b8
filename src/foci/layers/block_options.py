"""Options that all layers of a Transformer share; importing them does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foci.errors import ConfigError
from foci.names import DotScoreName, NormalizerName
from foci.options import Options, OwnPart, check_window


@dataclass(frozen=True, kw_only=True)
class BlockOptions(Options):
    """Options that all layers of a Transformer share."""

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
    positions: Literal["sinusoidal", "learned", "rotary", "alibi"] = "sinusoidal"
    """Positions: sinusoidal or learned ones are added to the embeddings, rotary and alibi belong to self-attention."""
    score: DotScoreName | OwnPart = "scaled_dot"
    """Score function of self-attention."""
    normalize: NormalizerName | OwnPart = "softmax"
    """Normalizer of self-attention."""
    window: tuple[int, int] | None = None
    """Positions before and after its own that self-attention covers, (left, right). Default: all positions."""
    bias: bool = True
    """Give the projections of the attentions and the layers of the feed-forward networks a bias."""
    rms_norm: bool = False
    """Normalize by the root mean square alone (RMSNorm) instead of LayerNorm."""
    qk_norm: bool = False
    """Normalize the queries and keys of self-attention."""
    zero_residual: bool = False
    """Start the layers that end a sublayer at 0, so that a new stack with norm = pre is the identity."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_window(owner, self.window)
        if self.model_dim % self.num_heads:
            raise ConfigError(
                f"{owner}: model_dim is {self.model_dim} and num_heads is {self.num_heads}, expected a model_dim "
                "that num_heads divides."
            )
        if self.positions == "rotary" and self.model_dim // self.num_heads % 2:
            raise ConfigError(
                f"{owner}: rotary positions with heads of {self.model_dim // self.num_heads} features, expected an "
                "even number. Change model_dim or num_heads."
            )

    @property
    def relative(self) -> bool:
        """Whether self-attention adds the positions itself."""
        return self.positions in ("rotary", "alibi")
