"""One student in every format that runs here: time, loading, size, memory and agreement."""
