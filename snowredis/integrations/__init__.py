"""Where Python programs live: one module for each framework; each imports its framework, and nothing imports it."""
