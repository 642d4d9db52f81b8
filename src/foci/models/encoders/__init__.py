"""Encoders: from a source to `foci.layers.interfaces.EncoderOutput`."""
