"""A deterministic simulation of many processes on one store: every race and crash from a seed.

Actors are ordinary functions that use the product's real code; see `docs/design/007-simulation.md`.
"""
