"""Training one recorded training again, alone, and comparing it with the ledger."""
