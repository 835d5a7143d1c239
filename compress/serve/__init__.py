"""A web service for model folders, in the protocols that clients have already."""
