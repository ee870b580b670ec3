"""Turns measurements into labels: outcomes, roles of heads, and certificates, which confirm outcomes."""
