"""Give the leases of killed processes back: crash records, and the process that acts on them."""
