"""The ledger: the Parquet tables of a sweep, the truth that everything else is a projection of.

Nothing is imported here: trainers need the schema alone, and start the faster without DuckDB.
"""
