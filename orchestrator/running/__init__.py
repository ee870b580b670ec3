"""Runs sweeps: draws configurations from the study, trains them, and stores rows in the ledger; stops, resumes,
retries."""
