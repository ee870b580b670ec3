"""Roles of attention heads over a sweep: how often, when, under which hyperparameters."""
