"""What commands print for a reader, where the result does not print itself."""
