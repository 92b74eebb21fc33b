"""The lab: which machines there are, who uses them, and how they are had."""
