"""Data: from the user's files to batches, and corpora that need no download."""

from foci.data.batch import Batch, PairExamples, Sequences, StreamBatches, TokenBatches
from foci.data.text import AlignedFiles, JsonlFile, Pair, TsvFile, check, open_corpus
from foci.data.tokenise import BOS, EOS, PAD, UNK, Encoding, Tokeniser

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "AlignedFiles",
    "Batch",
    "Encoding",
    "JsonlFile",
    "Pair",
    "PairExamples",
    "Sequences",
    "StreamBatches",
    "TokenBatches",
    "Tokeniser",
    "TsvFile",
    "check",
    "open_corpus",
]
