"""Trains packs: the trainers, the pools that they belong to, and the rows that they return."""
