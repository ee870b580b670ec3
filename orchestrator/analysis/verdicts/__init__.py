"""Verdicts on claims: the evidence of trainings, the decision, and a forecast of the trainings that it takes."""
