"""The forms in which data sets have objects in images, a module each; `foci.tasks.detect.reader` recognizes them."""
