"""The ledger: the Parquet tables of a sweep, the truth that everything else is a projection of.

This module imports nothing: trainers need only the schema, and start faster without DuckDB.
"""
