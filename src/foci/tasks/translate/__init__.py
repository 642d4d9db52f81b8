"""The application translate."""
