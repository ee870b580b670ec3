"""`attnsweep.problem`: a workload from a user's functions."""
