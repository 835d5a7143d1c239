"""A model folder beside its weights: compress.json, its history, README, tokenizer, files of other tools."""
