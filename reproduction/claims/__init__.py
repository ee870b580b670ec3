"""The numbers of the documents as rows (docs/claims/*.toml), and how to measure them again on another seed."""
