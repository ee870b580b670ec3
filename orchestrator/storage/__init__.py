"""The place of a sweep (a folder of a file system, or a prefix of an S3-compatible object store) and the records in
it."""
