"""Our own measurements: the figures and tables of docs/zeros.md and docs/translation.md."""
