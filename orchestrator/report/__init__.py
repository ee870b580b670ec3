"""A sweep's report: one HTML file that needs nothing else, and its figures. Heavy: imported where it is used."""
