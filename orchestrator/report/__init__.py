"""A sweep's report: one self-contained HTML file, and its figures. Slow to import, so import it inside functions."""
