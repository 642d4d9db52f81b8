"""Figures for print, by matplotlib, which is imported when something is drawn."""
