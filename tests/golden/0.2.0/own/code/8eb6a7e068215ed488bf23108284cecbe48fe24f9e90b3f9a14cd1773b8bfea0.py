NAME = "own"
