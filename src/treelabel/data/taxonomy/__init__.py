"""Taxonomy files: reading and writing hierarchies, finding the one of a data file, tables of moves."""

from treelabel.data.taxonomy.skos import read_alternative_names
from treelabel.data.taxonomy.taxonomy_files import read_taxonomy, write_taxonomy
from treelabel.data.taxonomy.taxonomy_tables import read_moves

__all__ = ["read_alternative_names", "read_moves", "read_taxonomy", "write_taxonomy"]
