"""The web server that speaks HTTP/1.1, 2 and 3 with the same TLS 1.3: Caddy, beside names that are resolved by DNS."""

import base64
import hashlib
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net import content, netns
from bentpipe_lab.net.process import PATIENCE_S, Process
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.programs import Debian, Go

CADDY = Go("caddy", source="caddy", module="github.com/caddyserver/caddy/v2")
DNSMASQ = Debian("dnsmasq", package="dnsmasq-base")
DOMAIN = content.HOST.partition(".")[2]
MOST_CACHED_S = 3600

CONFIGURATION = """\
{{
	admin off
	auto_https off
	persist_config off
	storage file_system {directory}/caddy
	servers {{
		protocols h1 h2 h3
	}}
}}
https://:{port} {{
	tls {directory}/chain.pem {directory}/key.pem {{
		protocols tls1.3
	}}
	root * {root}
	header Cache-Control "max-age={cached}"
	header Timing-Allow-Origin *
	file_server
}}
"""


@dataclass(frozen=True)
class WebServer:
    """A running server, and what its clients have to know."""

    root: Path
    """What is below it is served."""
    authority: Path
    """The certificate that a client trusts."""
    pin: str
    """SHA-256 of the server's public key, Base64, as browsers take it."""
    resolver: Path
    """A client's resolv.conf."""

    @property
    def base(self) -> str:
        """Before a path, its address."""
        return f"https://{content.HOST}:{content.WEB_PORT}/"


def start(path: Topology) -> WebServer:
    """Start it in the server's namespace, once for a path; it answers when this returns."""
    directory = path.directory.absolute() / "web"
    server = WebServer(directory / "root", directory / "authority.pem", "", directory / "resolv.conf")
    if not path.runs("caddy"):
        server.root.mkdir(parents=True, exist_ok=True)
        _certificates(directory)
        server.resolver.write_text(f"nameserver {SERVER4}\n")
        configuration = directory / "Caddyfile"
        configuration.write_text(
            CONFIGURATION.format(directory=directory, root=server.root, port=content.WEB_PORT, cached=MOST_CACHED_S)
        )
        _start_names(path)
        caddy = path.start(
            "caddy", path.server, [CADDY.found(), "run", "--adapter", "caddyfile", "--config", configuration]
        )
        _wait(path, caddy)
    return WebServer(server.root, server.authority, _pin(directory / "leaf.pem"), server.resolver)


def _start_names(path: Topology) -> None:
    """All names of the lab's domain are the server's; it answers from where it is, over the whole path."""
    argv = [
        DNSMASQ.found(), "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root",
        f"--listen-address={SERVER4}", "--bind-interfaces", f"--address=/{DOMAIN}/{SERVER4}", "--pid-file=",
        "--local-ttl=300",
    ]  # fmt: skip
    path.start("dnsmasq", path.server, [str(word) for word in argv])


def _wait(path: Topology, caddy: Process) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with path.server.socket() as probe:
            if probe.connect_ex((SERVER4, content.WEB_PORT)) == 0:
                return
        if caddy.exit_code is not None or time.monotonic() > deadline:
            raise ProgramError(f"Caddy does not answer{caddy.tail()}")
        time.sleep(0.02)


def _certificates(directory: Path) -> None:
    """An authority of the path's own, and the server's certificate for all names of the domain."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    authority, authority_key = directory / "authority.pem", directory / "authority.key"
    netns.checked(
        ["openssl", "req", "-x509", *key, "-subj", "/CN=bentpipe lab", "-keyout", str(authority_key), "-out",
         str(authority)]
    )  # fmt: skip
    names = f"DNS:{DOMAIN},DNS:*.{DOMAIN},DNS:*.third.{DOMAIN},IP:{SERVER4}"
    netns.checked(
        ["openssl", "req", "-x509", "-CA", str(authority), "-CAkey", str(authority_key), *key,
         "-subj", f"/CN={content.HOST}", "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=CA:FALSE",
         "-addext", "extendedKeyUsage=serverAuth", "-keyout", str(directory / "key.pem"), "-out",
         str(directory / "leaf.pem")]
    )  # fmt: skip
    (directory / "chain.pem").write_text((directory / "leaf.pem").read_text() + authority.read_text())


def _pin(certificate: Path) -> str:
    public = subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-noout", "-pubkey"], capture_output=True, check=True
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "DER"], input=public, capture_output=True, check=True
    ).stdout
    return base64.b64encode(hashlib.sha256(der).digest()).decode()
