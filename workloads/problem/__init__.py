"""Builds a workload from functions: the implementation of `attnsweep.problem`."""
