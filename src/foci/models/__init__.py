"""Models: one file an architecture, built from the mechanisms and layers below."""
