"""The mechanisms as `torch.nn.Module`s, one idea a file."""
