"""Short TCP connections, one after the other in many places at once: a byte each way, then the end.

`python -m bentpipe_lab.bench.connections serve PORT` answers them;
`python -m bentpipe_lab.bench.connections open ADDRESS PORT PLACES SECONDS` makes them and prints how many were whole.
"""

import selectors
import socket
import sys
import time

from bentpipe_lab.net.topology import SERVER4

BACKLOG = 1024
PATIENCE_S = 10.0
"""A connection that takes longer has failed."""


def serve(port: int) -> None:
    """Answer the first byte of each connection by itself, and close after the client."""
    listener = socket.create_server((SERVER4, port), backlog=BACKLOG)
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    _accept(listener, selector)
                else:
                    _answer(key.fileobj, selector)


def _accept(listener: socket.socket, selector: selectors.BaseSelector) -> None:
    try:
        while True:
            peer, _ = listener.accept()
            peer.setblocking(False)
            selector.register(peer, selectors.EVENT_READ)
    except BlockingIOError:
        pass


def _answer(peer: object, selector: selectors.BaseSelector) -> None:
    assert isinstance(peer, socket.socket)
    try:
        data = peer.recv(16)
        if data:
            peer.send(data)
            return
    except OSError:
        pass
    selector.unregister(peer)
    peer.close()


def connect(address: str, port: int, places: int, seconds: float) -> tuple[int, int]:
    """Make connections for so long, never more than `places` at a time: how many were whole, how many were not."""
    done = failed = 0
    begin = time.monotonic()
    with selectors.DefaultSelector() as selector:

        def begin_one() -> None:
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex((address, port))
            selector.register(client, selectors.EVENT_WRITE, time.monotonic())

        for _ in range(places):
            begin_one()
        while (now := time.monotonic()) < begin + seconds:
            for key, ready in selector.select(0.1):
                client = key.fileobj
                assert isinstance(client, socket.socket)
                try:
                    if ready & selectors.EVENT_WRITE:
                        client.send(b"?")
                        selector.modify(client, selectors.EVENT_READ, key.data)
                        continue
                    whole = client.recv(16) == b"?"
                except OSError:
                    whole = False
                done, failed = done + whole, failed + (not whole)
                selector.unregister(client)
                client.close()
                begin_one()
            for key in [key for key in selector.get_map().values() if now - key.data > PATIENCE_S]:
                assert isinstance(key.fileobj, socket.socket)
                selector.unregister(key.fileobj)
                key.fileobj.close()
                failed += 1
                begin_one()
    return done, failed


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", own_port]:
            serve(int(own_port))
        case ["open", server, server_port, at_once, length]:
            whole, broken = connect(server, int(server_port), int(at_once), float(length))
            print(f"{whole} {broken}", flush=True)
        case _:
            sys.exit(__doc__)
