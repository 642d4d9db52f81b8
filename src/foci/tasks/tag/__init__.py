"""The application tag."""
