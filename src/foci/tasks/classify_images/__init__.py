"""The application classify_images."""
