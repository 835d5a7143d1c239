"""From documents to packed sequences."""
