"""What `attnsweep doctor`, `audit`, `new-workload` and `prepare-corpus` do."""
