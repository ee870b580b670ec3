"""The figures that only reports use. Each has one panel, so that a phone can stack them."""
