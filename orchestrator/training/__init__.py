"""Who trains packs: trainers, the pools that they stand in, and the rows that they hand back."""
