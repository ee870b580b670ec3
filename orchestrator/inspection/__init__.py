"""Looks into single recorded trainings: repeats them, compares them with the ledger, and opens what they learned."""
