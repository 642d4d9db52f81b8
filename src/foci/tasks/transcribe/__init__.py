"""The application transcribe."""
