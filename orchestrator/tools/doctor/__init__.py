"""`attnsweep doctor`: what a user gets wrong before the first sweep, on this machine or on each node of a cluster."""
