"""Makes the captures of this directory: a small download by each implementation, with its keys in the file.

sudo .venv/bin/python e2e/captures/make.py      # after `bentpipe-lab stacks install`
"""

import subprocess
import tempfile
from pathlib import Path

from bentpipe_lab.matrix import cell, ends
from bentpipe_lab.net.topology import topology

HERE = Path(__file__).parent
FILE, BYTES = "small", 20_000
PAIRS = (
    "aioquic/aioquic", "chromium/envoy", "curl/nginx", "firefox/haproxy", "go-x-net/go-x-net",
    "kwik/quinn", "ngtcp2/ngtcp2", "noq/noq", "picoquic/picoquic", "quic-go/quic-go", "quinn/bun", "quinn/kwik",
    "quinn/quinn", "s2n-quic/s2n-quic", "tquic/tquic",
)  # fmt: skip
"""Client and server; one of both writes its keys. gm-quic is not among them: it puts packets with different connection
IDs into one datagram, against section 12.2 of RFC 9000, and tshark reads the first of them alone."""


def main() -> None:
    """Make all of them."""
    ends.FILES[FILE] = BYTES
    with tempfile.TemporaryDirectory() as directory, topology(Path(directory)) as path:
        for client, server in (pair.split("/") for pair in PAIRS):
            outcome = cell.run(path, cell.Request(client, server, FILE, 60))
            runs = (path.directory / "matrix").glob("run-*")
            run = max(runs, key=lambda each: each.stat().st_mtime_ns)
            keys = run / "keys.log"
            keys.write_bytes(b"".join(each.read_bytes() for each in run.glob("*/logs/keys.log")))
            name = client if client == server else f"{client}-{server}"
            kept = HERE / f"{name}.pcapng"
            subprocess.run(["editcap", "--inject-secrets", f"tls,{keys}", run / "client.pcap", kept], check=True)
            print(f"{name}: {outcome.verdict} {outcome.detail[:200]}, {kept.stat().st_size} bytes")


if __name__ == "__main__":
    main()
