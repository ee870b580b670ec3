"""From measurements to labels: outcomes and when they set in."""
