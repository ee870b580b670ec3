"""The implementation of `attnsweep.problem`, which builds a workload from a user's functions (model, data, loss)."""
