"""Verdicts on claims: evidence from trainings, the decision, and a forecast of how many trainings a decision takes."""
