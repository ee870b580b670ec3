"""Where a sweep is stored (a folder or a prefix of an S3-compatible object store), and the JSON records in it."""
