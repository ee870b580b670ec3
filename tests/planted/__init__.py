"""Does the suite notice a typical mistake in each room? `python -m tests.planted` plants one after the other."""
