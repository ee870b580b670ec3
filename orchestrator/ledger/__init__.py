"""The ledger: the Parquet tables of a sweep, from which all other views of it are derived.

This module imports nothing: trainers need only the schema, and start faster without DuckDB.
"""
