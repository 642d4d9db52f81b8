"""The application summarize."""
