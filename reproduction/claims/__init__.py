"""The claims of the documents (numbers with their intervals), read from docs/claims/*.toml, and commands that measure
them again on another seed.
"""
