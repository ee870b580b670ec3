"""`attnsweep prepare-corpus`: turns real parallel text into the corpus file that translators are trained on."""
