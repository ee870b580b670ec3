"""A training problem put together from functions: `attnsweep.problem`."""
