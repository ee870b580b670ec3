"""What the page's own script draws: every trial and training as compact columns, and some trainings in full."""
