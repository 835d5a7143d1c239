"""Building a student: fewer layers, narrower layers, factorised embeddings."""
