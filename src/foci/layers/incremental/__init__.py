"""Decoding step by step: caches, packed and quantized products, several hypotheses per source."""
