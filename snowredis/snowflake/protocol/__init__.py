"""Protocol of a pool: its constants, the requests and replies of its scripts, and the stores that run them."""
