"""Roles of attention heads: scores of what a head attends to, and labels. Formulas and sources: docs/heads.md."""
