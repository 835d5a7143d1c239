"""The machine's limits: its fastest matrix product and memory traffic."""
