"""What keeps a generator going: claims, renewals, waits, the outage lane, the end."""
