"""The application vqa."""
