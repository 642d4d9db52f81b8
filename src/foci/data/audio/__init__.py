"""Sound: files, features, resampling, augmentation and segments."""
