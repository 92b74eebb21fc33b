"""What guests boot: kernel, initramfs and read-only file systems, built once and kept in a cache."""
