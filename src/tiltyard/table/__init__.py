"""One version of a table and the operations on it, as functions; the commit loop; what may follow what."""
