"""Turns measurements into labels: outcomes of trainings, roles of attention heads, and certificates that confirm
outcomes."""
