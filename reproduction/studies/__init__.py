"""Our own measurements, not reproductions: the figures and tables of docs/zeros.md, docs/translation.md,
docs/mission.md and docs/gpt.md.
"""
