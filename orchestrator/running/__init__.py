"""The sweep loop: from the study's configurations to rows in the ledger, and what interrupts it."""
