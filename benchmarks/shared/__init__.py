"""Code that several benchmarks share, or that makes one of them too long. `make bench` does not run it."""
