"""Whole networks, one per file.

`encoders` give `foci.layers.interfaces.Encoded`, `decoders` read it (or nothing, as language models),
`encoder_decoder.EncoderDecoder` joins any of both. The interfaces stand in `foci.layers.interfaces`.
"""
