"""When trainings come to an outcome or a role: the share of them by step."""
