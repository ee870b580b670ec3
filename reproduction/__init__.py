"""Figures and tables of the literature, ours beside the published values."""

if __name__ != "attnsweep.reproduction":
    raise ImportError("reproduction: this package is attnsweep.reproduction; import its names from attnsweep")
