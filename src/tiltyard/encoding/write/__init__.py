"""The writing side: leaf arrays to pages. One module per encoding or layout; `pages` puts them together."""
