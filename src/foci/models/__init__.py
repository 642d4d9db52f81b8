"""Whole networks, one a file, with the three calls of `foci.layers.seq2seq`."""
