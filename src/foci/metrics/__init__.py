"""Metrics, one file per family: attention weights, labels, spans, calibration, text overlap."""
