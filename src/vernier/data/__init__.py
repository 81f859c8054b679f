"""From files to batches: sources (bytes by index), order, decode, transforms, loader."""
