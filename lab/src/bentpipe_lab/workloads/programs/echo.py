"""A UDP server that sends back what it gets; its address and port are its arguments."""

import socket
import sys


def main() -> None:
    """Serve until somebody ends it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind((sys.argv[1], int(sys.argv[2])))
        print("ready", flush=True)
        while True:
            data, peer = line.recvfrom(2048)
            line.sendto(data, peer)


if __name__ == "__main__":
    main()
