"""Trains packs (trainings in one batched program): the trainers, the pools that trainers belong to, and the ledger rows
that trainers return."""
