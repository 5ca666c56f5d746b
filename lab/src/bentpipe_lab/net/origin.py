"""The web server at the far end: real nginx with HTTP/1.1, HTTP/2 over TLS 1.3, and uploads by PUT."""

import time
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net import content, netns
from bentpipe_lab.net.process import PATIENCE_S, Process

NAME = content.HOST

CONFIGURATION = """\
# One process: it lives as long as a run does, and its owner supervises it.
daemon off;
master_process off;
user root;  # also the name of whoever is alone in a user namespace
pid {directory}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 8192; }}
worker_rlimit_nofile 16384;
http {{
    access_log off;
    sendfile on;
    tcp_nodelay on;
    gzip off;
    default_type application/octet-stream;
    types {{ text/html html; text/css css; image/jpeg jpg; image/gif gif; text/plain txt; }}
    keepalive_requests 10000;
    keepalive_timeout 3600s;
    send_timeout 3600s;
    client_body_timeout 3600s;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/unused;
    fastcgi_temp_path {directory}/unused;
    uwsgi_temp_path {directory}/unused;
    scgi_temp_path {directory}/unused;
    server {{
        listen 80;
        listen [::]:80;
        listen 443 ssl http2;
        listen [::]:443 ssl http2;
        server_name {name};
        ssl_certificate {directory}/certificate.pem;
        ssl_certificate_key {directory}/key.pem;
        ssl_protocols TLSv1.3;
        root {directory}/content;
        location /upload/ {{
            alias {directory}/uploads/;
            dav_methods PUT;
            client_max_body_size 0;
        }}
    }}
}}
"""


@dataclass
class Origin:
    """A running web server, what it serves, and where it keeps what it was sent."""

    process: Process
    objects: dict[str, content.Object]
    certificate: Path
    uploads: Path
    root: Path
    """What is below it is served."""

    def provide(self, size: int) -> content.Object:
        """A file of so many bytes, made when it is first asked for."""
        name = f"bytes-{size}"
        if name not in self.objects:
            self.objects[name] = content.write_file(self.root, name, content.incompressible(name, size))
        return self.objects[name]


def start(server: netns.Namespace, directory: Path, addresses: list[str]) -> Origin:
    """Start it in a namespace; it is ready when this returns."""
    site = directory / "origin"
    for part in ("content", "uploads", "body"):
        (site / part).mkdir(parents=True, exist_ok=True)
    objects = content.write(site / "content")
    certificate = make_certificate(site, addresses)
    configuration = site / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(directory=site.absolute(), name=NAME))
    argv = ["nginx", "-e", "stderr", "-c", str(configuration.absolute()), "-p", str(site.absolute())]
    process = Process("nginx", server.command(argv), directory)
    deadline = time.monotonic() + PATIENCE_S
    while not answers(server):
        if process.exit_code is not None or time.monotonic() > deadline:
            process.stop()
            raise ProgramError(f"nginx does not answer{process.tail()}")
        time.sleep(0.02)
    return Origin(process, objects, certificate, site / "uploads", site / "content")


def answers(server: netns.Namespace) -> bool:
    """Whether something accepts connections at the web server's port."""
    with server.socket() as probe:
        return probe.connect_ex(("127.0.0.1", 80)) == 0


def make_certificate(directory: Path, addresses: list[str]) -> Path:
    """Make a self-signed certificate (ECDSA P-256) for the origin's name and addresses; the client trusts it."""
    certificate = directory / "certificate.pem"
    names = ",".join([f"DNS:{NAME}", *(f"IP:{address}" for address in addresses)])
    netns.checked(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "30", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName={names}",
            "-keyout", str(directory / "key.pem"), "-out", str(certificate),
        ]
    )  # fmt: skip
    return certificate
