"""How well a model predicts held-out documents, beside what counting alone predicts."""
