"""`attnsweep new-workload`: writes a file with a small workload for the user to change."""
