"""What iproute2 6.1, ethtool 6.1 and iputils 20221126 print of a guest's card, Linux 6.12."""

QUEUES = (
    '[{"kind":"netem","handle":"1:","root":true,"refcnt":2,"options":{"limit":3000,"delay":{"delay":0.01,"jitter":0.002,'
    '"correlation":0},"loss-random":{"loss":0.005,"correlation":0},"ecn":false,"gap":0}},{"kind":"tbf","handle":"10:",'
    '"parent":"1:1","options":{"rate":12500000,"burst":65525,"lat":74758}}]\n'
)
OWN_QUEUES = '[{"kind":"fq_codel","handle":"0:","root":true,"refcnt":2,"options":{"limit":10240,"flows":1024}}]'
LINK = (
    '[{"ifindex":2,"ifname":"storlab0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":9000,"qdisc":"fq_codel",'
    '"operstate":"UP","linkmode":"DEFAULT","group":"default","txqlen":1000,"link_type":"ether",'
    '"address":"52:54:00:5b:00:02","broadcast":"ff:ff:ff:ff:ff:ff"}]\n'
)
FEATURES = """Features for storlab0:
rx-checksumming: on [fixed]
tx-checksumming: on
\ttx-checksum-ipv4: off [fixed]
tcp-segmentation-offload: on
\ttx-tcp-segmentation: on
generic-segmentation-offload: off [requested on]
generic-receive-offload: on
large-receive-offload: off [fixed]
"""
PING = """PING 10.213.0.2 (10.213.0.2) 56(84) bytes of data.
64 bytes from 10.213.0.2: icmp_seq=1 ttl=64 time=75.5 ms
64 bytes from 10.213.0.2: icmp_seq=2 ttl=64 time=27.6 ms
64 bytes from 10.213.0.2: icmp_seq=4 ttl=64 time=21.2 ms

--- 10.213.0.2 ping statistics ---
4 packets transmitted, 3 received, 25% packet loss, time 112ms
rtt min/avg/max/mdev = 21.163/41.400/75.473/21.836 ms, pipe 2
"""
CONNECTIONS = """0      0         10.213.0.3:47832      10.213.0.2:10809
\t cubic wscale:7,7 rto:204 rtt:0.551/0.413 ato:40 mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:10 bytes_sent:208
0      0         10.213.0.3:47834      10.213.0.2:10810
\t reno rto:204 rtt:0.551/0.413 mss:8948 pmtu:9000 rcvmss:536 advmss:8948 cwnd:10
0      0    [::ffff:10.213.0.3]:80   [::ffff:10.213.0.9]:999
\t cubic wscale:7,7 rto:204 mss:536 pmtu:576 rcvmss:536
"""
