"""Task kinds, one a file."""
