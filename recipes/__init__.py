"""Recipes: training runs on real data, and the table of their results (docs/results.md)."""
