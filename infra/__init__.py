"""Infrastructure: cluster files and the script for `ray submit`. No training imports anything from here."""
