"""What the console prints with: tables and the progress line."""
