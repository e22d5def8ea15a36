"""One question per folder: what was measured here, and what others claim, tried again."""
