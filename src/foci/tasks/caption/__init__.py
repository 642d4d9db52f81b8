"""The application caption."""
