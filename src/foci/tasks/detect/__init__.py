"""Objects in images: boxes with classes, found by queries that attend to the picture."""
