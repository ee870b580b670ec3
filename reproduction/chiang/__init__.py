"""Chiang & Cholak 2022, on the formal languages FIRST and PARITY: exact transformers, trained ones, and translators."""
