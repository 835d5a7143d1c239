"""A new vocabulary, or further pieces for one."""
