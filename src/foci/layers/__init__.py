"""Blocks that are not attention."""
