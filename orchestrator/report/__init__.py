"""A sweep's report: one self-contained HTML file, and its figures. Slow to import, so imported where it is used."""
