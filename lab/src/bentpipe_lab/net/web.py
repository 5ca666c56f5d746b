"""The web server that speaks HTTP/1.1, 2 and 3 with the same TLS 1.3: Caddy, beside names that are resolved by DNS."""

import time
from dataclasses import dataclass
from pathlib import Path

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net import content
from bentpipe_lab.net.authority import DOMAIN, Authority
from bentpipe_lab.net.process import PATIENCE_S, Process
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.programs import Debian, Go

CADDY = Go("caddy", source="caddy", module="github.com/caddyserver/caddy/v2")
DNSMASQ = Debian("dnsmasq", package="dnsmasq-base")
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
	tls {chain} {key} {{
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
    """SHA-256 of the public keys of who may answer in its name, as Chromium takes them."""
    resolver: Path
    """A client's resolv.conf."""

    @property
    def base(self) -> str:
        """Before a path, its address."""
        return f"https://{content.HOST}:{content.WEB_PORT}/"


def start(path: Topology) -> WebServer:
    """Start it in the server's namespace, once for a path; it answers when this returns."""
    directory = path.directory.absolute() / "web"
    authority = Authority.of(path)
    identity = authority.issue("web")
    root, resolver = directory / "root", directory / "resolv.conf"
    if not path.runs("caddy"):
        root.mkdir(parents=True, exist_ok=True)
        resolver.write_text(f"nameserver {SERVER4}\n")
        configuration = directory / "Caddyfile"
        configuration.write_text(
            CONFIGURATION.format(
                directory=directory,
                root=root,
                port=content.WEB_PORT,
                cached=MOST_CACHED_S,
                chain=identity.chain,
                key=identity.key,
            )
        )
        _start_names(path)
        caddy = path.start(
            "caddy", path.server, [CADDY.found(), "run", "--adapter", "caddyfile", "--config", configuration]
        )
        _wait(path, caddy)
    return WebServer(root, authority.certificate, authority.pins(), resolver)


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
