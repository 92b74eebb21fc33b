# A transfer over loopback with frames of 1500 bytes, none merged, in a network namespace of its own; captured to $1.
# Prints what the client's kernel counted: data segments out and in, all segments out and in.
set -e
ip link set lo mtu 1500 up
ethtool -K lo tso off gso off gro off >/dev/null
tcpdump -q -U --immediate-mode -i lo -s 96 -B 16384 -w "$1" tcp 2>"$1.said" &
tcpdump=$!
for _ in $(seq 100); do grep -q listening "$1.said" && break; sleep 0.1; done
python3 - <<'PYTHON'
import socket, struct, threading

listening = socket.create_server(("127.0.0.1", 2049))


def serve() -> None:
    talk, _ = listening.accept()
    while talk.recv(128):
        talk.sendall(b"x" * 131072)
    talk.close()


server = threading.Thread(target=serve)
server.start()
client = socket.create_connection(("127.0.0.1", 2049))
for _ in range(20):
    client.sendall(b"r" * 128)
    left = 131072
    while left:
        left -= len(client.recv(min(left, 65536)))
info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
out, into, _, _, data_in, data_out = struct.unpack_from("6I", info, 136)
print(data_out, data_in, out, into)
client.close()
server.join()
PYTHON
until sleep 1; [ "$(stat -c %s "$1")" = "${size:-}" ]; do size=$(stat -c %s "$1"); done
kill -INT $tcpdump
wait $tcpdump
