"""Whole networks, one per file.

`encoders` return `foci.layers.interfaces.EncoderOutput`, `decoders` take it (or nothing, as language models),
`encoder_decoder.EncoderDecoder` combines any two of them. The interfaces are in `foci.layers.interfaces`.
"""
