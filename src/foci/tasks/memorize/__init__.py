"""The application memorize."""
