"""Figures, one file per family: attention weights, labels, text overlap."""
