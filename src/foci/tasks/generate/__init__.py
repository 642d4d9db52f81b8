"""The application generate."""
