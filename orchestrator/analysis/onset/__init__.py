"""When trainings reach an outcome or a role: the share of them by step."""
