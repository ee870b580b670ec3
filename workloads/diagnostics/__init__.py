"""From measurements to labels: outcomes, roles and certificates."""
