"""The recipe: its schema, and reading it from YAML."""
