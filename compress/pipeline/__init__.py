"""Recipe → plan → steps → report: what runs, what stands, what is kept."""
