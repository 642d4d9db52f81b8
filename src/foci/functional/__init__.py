"""Pure tensor functions: parameters are arguments, leading axes broadcast."""
