"""`attnsweep prepare-corpus`: from real parallel text to the file of numbers that translators are trained on."""
