"""Virtual machines as nodes: QEMU started, watched and ended; the agent inside answers over virtio-serial."""
