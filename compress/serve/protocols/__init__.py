"""The protocols, each a list of routes: what is read, what is answered, and what a refusal looks like."""
