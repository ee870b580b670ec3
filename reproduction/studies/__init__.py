"""Measurements of our own, not of a publication: the figures and tables of docs/zeros.md, docs/translation.md,
docs/mission.md, docs/gpt.md and other pages.
"""
