"""Decoding step by step: caches, packed and quantised products, several hypotheses per source."""
