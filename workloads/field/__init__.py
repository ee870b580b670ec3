"""Training problems from the literature, built with `attnsweep.problem`. Each file has the name of its problem."""
