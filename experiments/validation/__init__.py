"""Step times and memory that were measured and published, against ours."""
