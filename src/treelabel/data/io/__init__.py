"""Files and Arrow tables: one module per format, rows in FORMATS, and `open_tables` and `write_tables` for all."""
