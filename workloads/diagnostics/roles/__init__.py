"""Roles of attention heads: scores what a head attends to, and labels it. Formulas and sources: docs/heads.md."""
