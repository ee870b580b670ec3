"""Looks into single recorded trainings: trains them again, compares them with the ledger, and loads their weights."""
