"""Chiang & Cholak 2022, on the formal languages FIRST and PARITY: encoders with weights set by hand, trained encoders,
and translators.
"""
