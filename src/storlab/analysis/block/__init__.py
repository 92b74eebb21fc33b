"""What requests to block devices were: their sizes and their alignment, over rounds."""
