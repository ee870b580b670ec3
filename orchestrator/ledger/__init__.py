"""The ledger: the Parquet tables that store a sweep's results (`trainings`, `curves`, `heads`). Reports, analyses and
MLflow runs are derived from them.

This module imports nothing: trainers need only the schema, and start faster without DuckDB.
"""
