"""Measurements of scripts/bench, one module for each part, and the tables and plots made from them."""
