"""The practitioner's loop: audit labels, review predictions, update a model, measure drift."""
