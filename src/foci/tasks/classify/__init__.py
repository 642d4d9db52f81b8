"""The application classify."""
