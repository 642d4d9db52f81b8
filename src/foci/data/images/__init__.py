"""Images: files, features of pretrained networks, and drawn scenes."""
