"""Linear-chain and segmental conditional random fields."""

from foci.functional.crf.chain import BestSequences, log_likelihood, log_partition, marginals, viterbi

__all__ = ["BestSequences", "log_likelihood", "log_partition", "marginals", "viterbi"]
