"""Roles of attention heads over a sweep: how often they occur, when they emerge, under which hyperparameters."""
