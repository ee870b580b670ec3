"""Training packs: trainers, pools of trainers, and the rows that they return."""
