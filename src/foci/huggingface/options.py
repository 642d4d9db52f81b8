"""How a Hugging Face model is read: what goes in, and how it generates."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le

from foci.errors import ConfigError
from foci.settings import Texts, settings


@settings
class ReadOptions:
    """How a Hugging Face model is read."""

    generate: Annotated[int, Ge(1)] | None = None
    """Generate at most this many tokens, and show prompt and answer as one text. A model with encoder and decoder
    always generates: by default up to twice the source and 20 more."""
    beam_size: Annotated[int, Ge(1)] | None = None
    """Hypotheses of the beam search; the attention shown is that of the one that won. Default: the model's own."""
    temperature: Annotated[float, Gt(0), Le(1000)] | None = None
    """Sample instead of searching: 1 draws from the model's distribution, lower values prefer likely tokens."""
    top_k: Annotated[int, Ge(1)] | None = None
    """Sample among this many likeliest tokens; needs a temperature."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Sample among the fewest tokens whose probabilities add up to this; needs a temperature."""
    seed: Annotated[int, Ge(0)] | None = None
    """Seed of the sampling; needs a temperature. Default: 0."""
    image: Texts = ()
    """An image that the model reads with the text, for models that read both; several times for several. They stand
    before the text, where it does not place them."""
    chat: bool = False
    """Put the text into the chat template of the model's tokenizer, as what the user says."""
    system: str | None = None
    """What the system says before the user; needs chat."""

    def __post_init__(self) -> None:
        if self.temperature is None and (self.top_k is not None or self.top_p != 1.0 or self.seed is not None):
            raise ConfigError("top_k, top_p and seed are about sampling, so they need a temperature, such as 1.0.")
        if self.temperature is not None and self.beam_size is not None:
            raise ConfigError("temperature samples instead of searching, so beam_size has no effect. Leave one out.")
        if self.system is not None and not self.chat:
            raise ConfigError("system is a part of a chat. Add chat.")
