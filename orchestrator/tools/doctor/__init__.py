"""`attnsweep doctor`: finds common faults of an installation before the first sweep, on this machine or on each node of
a cluster."""
