"""Data: from the user's files to batches, and corpora that need no download."""

from foci.data.batching import Batch, PairExamples, Sequences, StreamBatches, TokenBatches
from foci.data.pairs import AlignedFiles, Pair, TableFile, check, open_corpus
from foci.data.tokenizer import BOS, EOS, PAD, UNK, Encoding, Tokenizer

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "AlignedFiles",
    "Batch",
    "Encoding",
    "Pair",
    "PairExamples",
    "Sequences",
    "StreamBatches",
    "TableFile",
    "TokenBatches",
    "Tokenizer",
    "check",
    "open_corpus",
]
