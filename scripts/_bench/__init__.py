"""Measurements of scripts/bench, one module for each part, and the tables made from them."""
