"""The shipped sweeps: one module each, with a function `sweep()`."""
