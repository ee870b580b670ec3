"""Where a sweep lives: a folder of a file system, or a prefix of an S3-compatible object store."""
