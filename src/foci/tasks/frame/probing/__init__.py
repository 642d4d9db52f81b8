"""Runs as what `foci.probe` takes."""
