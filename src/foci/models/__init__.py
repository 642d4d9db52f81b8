"""Whole models: mechanisms and layers put together as the papers did."""
