"""What scripts/bench measures, a module a part, and the tables and plots it makes of it."""
