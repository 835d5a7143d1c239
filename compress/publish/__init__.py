"""Publishing winners: model card, checksums, local zoo, upload to the hub, download and verification."""
