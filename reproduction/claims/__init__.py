"""The claims of the documents, read from docs/claims/*.toml, and commands that measure them again on another seed."""
