"""Runs sweeps: draws configurations from the Optuna study, trains them, and stores the results as rows of the ledger
(Parquet tables). Stops and resumes sweeps, and trains failed trainings again."""
