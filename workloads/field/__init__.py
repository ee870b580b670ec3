"""Training problems from the literature, put together with `attnsweep.problem`. Each file is named for its problem."""
