"""Options of the models that read words: tagger, entailers, cloze reader, hierarchical classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from foci.errors import ConfigError, check_sizes
from foci.layers.several_heads import HEAD_OPTIONS, HeadOptions
from foci.models.options.text_encoders import Cell
from foci.options import Options, check_default


@dataclass(frozen=True, kw_only=True)
class TaggerOptions(HeadOptions):
    """A label for each word, chosen for the sentence as a whole; options of heads are for encoder = attention."""

    embedding_dim: int = 100
    """Size of the learned word vectors."""
    spelling: Literal["cnn", "lstm", "none"] = "cnn"
    """How a word's characters are read."""
    character_dim: int = 30
    """Size of the vector of a character."""
    spelling_dim: int = 50
    """Size of a word's vector from its characters."""
    kernel_size: int = 3
    """Characters that a convolution covers, for spelling = cnn."""
    encoder: Literal["lstm", "gru", "attention"] = "lstm"
    """Encoder of the words: a bidirectional LSTM or GRU, or layers of self-attention."""
    hidden_dim: int = 200
    """Size of an encoded word, both directions together."""
    num_layers: int = 1
    """Layers of the encoder."""
    num_heads: int = 4
    """Heads of self-attention, for encoder = attention."""
    positions: Literal["rotary", "alibi", "t5", "shaw", "transformer_xl"] = "rotary"
    """Relative positions of self-attention, for encoder = attention."""
    output: Literal["crf", "softmax"] = "crf"
    """Output layer: a CRF over the sentence, or a softmax for each word."""
    dropout: float = 0.0
    """Dropout before and after the encoder and between its layers."""
    attention_dropout: float = 0.1
    """Dropout inside the layers of self-attention, for encoder = attention."""
    word_dropout: float = 0.0
    """Share of the words that are replaced by the unknown word in training."""
    tags_read_intent: bool = False
    """Add to the scores of the tags what the predicted intents say for or against each of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder != "attention":
            check_default("TaggerOptions", self, *HEAD_OPTIONS, reason="Set encoder='attention', which has heads.")


TAGGER_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"embedding_dim": 48, "character_dim": 16, "spelling_dim": 32, "hidden_dim": 96, "dropout": 0.2},
    "base": {"embedding_dim": 100, "character_dim": 30, "spelling_dim": 50, "hidden_dim": 256, "dropout": 0.5},
}


@dataclass(frozen=True, kw_only=True)
class ConditionalEntailerOptions(Options):
    """Two LSTMs, the second of which reads the hypothesis given the premise (Rocktäschel et al., 2016)."""

    kind: Literal["conditional"] = "conditional"
    """Two LSTMs, the second of which reads the hypothesis given the premise."""
    embedding_dim: int = 100
    """Size of the learned word vectors."""
    hidden_dim: int = 100
    """Size of an encoded word."""
    attention: Literal["none", "attention", "word_by_word", "two_way"] = "word_by_word"
    """Attention to the premise: none, once by the whole hypothesis, by each of its words, or by each word both ways."""
    exact_match: bool = False
    """Give each word a feature that says whether the other sentence has it."""
    dropout: float = 0.0
    """Dropout on the words, on the inputs of the LSTMs, and on the vector of the pair."""
    word_dropout: float = 0.0
    """Share of the words that are replaced by the unknown word in training."""


@dataclass(frozen=True, kw_only=True)
class DecomposableEntailerOptions(Options):
    """Words are aligned, compared and summed (Parikh et al., 2016)."""

    kind: Literal["decomposable"] = "decomposable"
    """Words are aligned, compared and summed."""
    embedding_dim: int = 100
    """Size of the learned word vectors."""
    hidden_dim: int = 100
    """Size of a word and of all layers."""
    encoder: Literal["none", "lstm", "gru"] = "none"
    """Encoder of the words before they are aligned, in both directions."""
    difference: bool = False
    """Compare with the feature |a − β|."""
    product: bool = False
    """Compare with the feature a ∘ β."""
    exact_match: bool = False
    """Give each word a feature that says whether the other sentence has it."""
    null: bool = True
    """Put a learned vector before each sentence, for words that have no counterpart."""
    pooling: Literal["sum", "mean_max"] = "sum"
    """How comparisons are combined."""
    dropout: float = 0.0
    """Dropout before each layer."""
    word_dropout: float = 0.0
    """Share of the words that are replaced by the unknown word in training."""


EntailerOptions = ConditionalEntailerOptions | DecomposableEntailerOptions

_ENTAILER_SIZES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"embedding_dim": 48, "hidden_dim": 64, "dropout": 0.1},
    "base": {"embedding_dim": 100, "hidden_dim": 100, "dropout": 0.3},
}
ENTAILER_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "conditional": {**_ENTAILER_SIZES, "rocktaschel": {"embedding_dim": 300, "hidden_dim": 100, "dropout": 0.1}},
    "decomposable": {**_ENTAILER_SIZES, "parikh": {"embedding_dim": 300, "hidden_dim": 200, "dropout": 0.2}},
}
"""Kind of entailer -> name -> options."""


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(Options):
    """Attention over the words of a document, which fills the blank of a question."""

    reader: Literal["sum", "over_attention"] = "sum"
    """What asks: the whole question (Kadlec et al.) or each of its words (Cui et al.)."""
    hops: int = 0
    """Number of times that the document is gated by the question before it is read (Dhingra et al.)."""
    question: Literal["ends", "blank"] = "blank"
    """State that asks for the whole question: the last ones of both directions, or the one at the blank. A question
    without a blank asks by its ends."""
    embedding_dim: int = 128
    """Size of the learned word vectors."""
    hidden_dim: int = 256
    """Size of an encoded word, both directions together."""
    cell: Cell = "gru"
    """Recurrent cell of the encoders."""
    shared: bool = False
    """Encode document and question with the same weights."""
    overlap: bool = True
    """Give each word of the document a feature that says whether it is in the question."""
    anonymize: float = 0.0
    """Share of the questions whose candidates are replaced by random entities in training; with 1, they are replaced
    by their numbers in predictions too."""
    entities: int = 50
    """Number of these entities; more candidates share them."""
    dropout: float = 0.0
    """Dropout on the inputs of an encoder and on what is compared."""
    word_dropout: float = 0.0
    """Share of the words whose learned vector is 0 in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_sizes(owner, entities=self.entities)
        if self.hops < 0 or not 0 <= self.anonymize <= 1:
            raise ConfigError(
                f"{owner}: hops is {self.hops} and anonymize is {self.anonymize}, expected 0 or more, and from 0 to 1."
            )
        if self.shared and self.hops:
            raise ConfigError(
                f"{owner}: shared is True with {self.hops} hops, expected it for readers without hops, which encode "
                "gated documents. Set hops=0."
            )


READER_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"embedding_dim": 32, "hidden_dim": 64, "cell": "lstm", "dropout": 0.1},
    "small": {"embedding_dim": 64, "hidden_dim": 128, "cell": "lstm", "dropout": 0.3},
    "base": {"embedding_dim": 128, "hidden_dim": 256, "cell": "lstm", "dropout": 0.3},
}
"""On a CPU torch's LSTM takes half the time of its GRU, which the papers have."""


Pooling = Literal["hierarchical", "attention", "mean", "last"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


@dataclass(frozen=True, kw_only=True)
class HierarchicalClassifierOptions(Options):
    """Attention over words and over sentences, which classifies documents."""

    embedding_dim: int = 200
    """Size of the embeddings."""
    hidden_dim: int = 100
    """Size of an encoded word and of an encoded sentence, both directions together."""
    attention_dim: int | None = None
    """Size in which words and sentences are compared with the learned vectors. Default: hidden_dim."""
    pooling: Pooling = "hierarchical"
    """How a document becomes one vector: by its sentences; or as one sentence by attention, by its mean, or by the last
    states of both directions."""
    num_layers: int = 1
    """Layers of each encoder."""
    cell: Cell = "gru"
    """Recurrent cell of the encoders."""
    dropout: float = 0.0
    """Dropout on embeddings, between layers, and before the output layer."""


HIERARCHICAL_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"embedding_dim": 64, "hidden_dim": 64, "dropout": 0.2},
    "base": {"embedding_dim": 100, "hidden_dim": 100, "dropout": 0.3},
    "yang": {"embedding_dim": 200, "hidden_dim": 100},
}
