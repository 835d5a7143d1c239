"""Which precision a training runs in where its recipe leaves that to `auto`."""
