"""A winner on its way to others: model card, zoo, hub, and the check that a copy is whole."""
