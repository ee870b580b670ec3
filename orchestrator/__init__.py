"""Who runs what, when, and what survives?"""
