"""The application cloze."""
