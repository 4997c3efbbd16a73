"""Further scores on a test set: COMET, and text as users might write it."""
