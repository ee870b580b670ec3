"""Turns measurements into labels: outcomes of trainings, roles of heads, and certificates that confirm outcomes."""
