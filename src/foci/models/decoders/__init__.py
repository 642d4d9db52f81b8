"""Decoders: predict a target token by token, from an encoded source or without one."""
