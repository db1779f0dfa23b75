"""Reading data files of version 2.0 (file format 5): columns of pages of array encodings, one per field."""
