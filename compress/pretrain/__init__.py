"""Pretraining: from documents to packed sequences, masks, objectives without labels, and an encoder with its report."""
