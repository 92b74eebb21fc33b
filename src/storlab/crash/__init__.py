"""What a power cut would leave: writes are logged underneath a guest's disk, cut off at some moment, and looked at."""
