"""Reproductions of published figures and tables: each compares our values with the published ones."""

if __name__ != "attnsweep.reproduction":
    raise ImportError("reproduction cannot be imported by this name: import attnsweep, or attnsweep.reproduction")
