"""Captures of packets: pcap, pcapng, and what tcpdump prints; what TCP did in them."""
