"""Block requests as the kernel issued them: their lengths and alignment, what that means, and the formats they come in.

Pure functions: frames and text in, frames and text out.
"""
