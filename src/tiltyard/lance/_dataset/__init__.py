"""Where the official package keeps what reads a dataset in parts."""
