"""foci: attention for PyTorch."""
