"""What trainings say about a claim: evidence, verdict, and how many trainings a verdict takes."""
