"""Compares an export with the model it came from: on golden inputs, which travel with it, and on rows of train."""
