"""Traces as interactive pages, each one file that needs no network."""
