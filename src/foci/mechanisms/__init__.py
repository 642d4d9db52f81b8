"""The mechanisms as `torch.nn.Module`s, one per file."""
