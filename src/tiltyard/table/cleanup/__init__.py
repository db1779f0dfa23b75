"""Removing old versions and what only they need: pure selection (`reachable`, `select`), its account
(`explain`), and the loop that does it (`survey`, `run`).
"""
