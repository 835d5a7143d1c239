"""Students without attention and cascades, beside transformers, model2vec, fastText and a bag of words."""
