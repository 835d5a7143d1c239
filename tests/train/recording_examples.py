"""Examples that record which rows a training reads."""


class RecordingExamples:
    """Encoded examples; `seen` has the numbers of the rows of every batch."""

    def __init__(self, examples):
        self.examples, self.seen = examples, []

    def __getattr__(self, name):
        return getattr(self.examples, name)

    def batch(self, indices):
        self.seen += indices.tolist()
        return self.examples.batch(indices)
