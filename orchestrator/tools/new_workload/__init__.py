"""`attnsweep new-workload`: a file with a small workload of the user's own, to be changed."""
