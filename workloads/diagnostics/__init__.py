"""Turns measurements into labels: the outcomes of trainings, the roles of attention heads, and certificates, which
confirm outcomes by further tests."""
