"""The report of a pretraining, and the cards of what it made."""
