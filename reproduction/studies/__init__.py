"""Our own measurements: the figures and tables of docs/zeros.md, docs/translation.md, docs/mission.md and
docs/gpt.md.
"""
