"""Vocabulary pruning: which word pieces stay, the tokenizer and the word vectors without the others."""
