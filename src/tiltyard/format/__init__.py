"""What is written down: wire messages, and the frozen values that the rest of the library sees instead of
them.
"""
