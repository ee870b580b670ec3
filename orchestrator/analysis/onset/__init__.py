"""When trainings reach an outcome, a role or an event: the share that has reached it, by step."""
