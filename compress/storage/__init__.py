"""Writing files that are kept: atomic writes, schema versions, valid file names."""
