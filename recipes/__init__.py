"""Recipes: trainings on real data, and the table of what they reached (docs/results.md)."""
