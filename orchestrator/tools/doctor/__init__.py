"""`attnsweep doctor`: finds common faults of an installation, on this machine or on each node of a cluster."""
