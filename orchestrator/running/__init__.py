"""The sweep loop: from the study's configurations to rows in the ledger; stopping, resuming, retrying."""
