"""What `scripts/docs.py` makes the pages of."""
