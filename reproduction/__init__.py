"""Reproductions of published figures and tables: each compares our values with the published ones."""

if __name__ != "attnsweep.reproduction":
    raise ImportError("reproduction: this package is attnsweep.reproduction; import its names from attnsweep")
