"""The ledger: the Parquet tables of a sweep's results, from which reports, analyses and MLflow runs are derived.

This module imports nothing: trainers need only the schema, and start faster without DuckDB.
"""
