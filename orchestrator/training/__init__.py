"""Trains packs (trainings that run side by side in one program): trainers, pools of trainers, and the rows that they
return."""
