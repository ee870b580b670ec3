"""`attnsweep prepare-corpus`: makes a corpus of pairs for the workload `translation`, or a text for `gpt`."""
