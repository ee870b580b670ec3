"""Looks into single recorded trainings: repeats them, compares them with the ledger, and loads what they learned."""
