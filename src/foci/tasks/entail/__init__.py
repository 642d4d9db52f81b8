"""The application entail."""
