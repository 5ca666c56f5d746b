"""DNS through the tunnel: `dig` asks the terminal, and a real name server behind the gateway answers."""

import base64
import re
import signal
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import BLACKHOLE4, PRIVATE4, SERVER4, SERVER6, Topology
from bentpipe_lab.systems.tunnel import RESOLVER, Bentpipe
from conversation import PATIENCE_S, connect, eventually
from test_operation import status

ANOTHER4 = "10.77.2.9"
"""An address of the server that no name has."""
RESOLVER_NAME = "resolver.lan.example"
DOT_PORT = 853
DOH_PORT = 8443
WWW = struct.pack("!6H", 0, 0x0100, 1, 0, 0, 0) + b"\x03www\x03lab\x07example\x00\x00\x01\x00\x01"
"""A question for an address of www.lab.example."""
LONG_TEXT = "a text of some length that fills an answer"


@dataclass
class Answer:
    """What `dig` printed."""

    status: str
    flags: set[str]
    records: list[list[str]]
    """Name, time to live, class, type and data of each record of the answer."""
    took_ms: int
    text: str

    @property
    def data(self) -> list[str]:
        """The last field of each record."""
        return [record[-1] for record in self.records]


def dig(path: Topology, *question: str, at: str = RESOLVER[0]) -> Answer:
    """Ask from the client, the terminal's resolver unless another is named."""
    argv = ["dig", f"@{at}", "+tries=1", f"+timeout={PATIENCE_S:.0f}", *question]
    done = subprocess.run(path.client.command(argv), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout
    (code,) = re.findall(r"status: (\w+)", text)
    (flags,) = re.findall(r"flags: ([a-z ]*);", text)
    (took,) = re.findall(r"Query time: (\d+) msec", text)
    section = text.partition("ANSWER SECTION:\n")[2].partition("\n\n")[0]
    records = [line.split(maxsplit=4) for line in section.splitlines()]
    return Answer(code, set(flags.split()), records, int(took), text)


@contextmanager
def name_server(path: Topology) -> Iterator[Process]:
    """A dnsmasq in the server's namespace, with some names of its own and nobody to ask."""
    configuration = path.directory / "dnsmasq.conf"
    texts = "\n".join(f'txt-record=long.lab.example,"{number} {LONG_TEXT}"' for number in range(40))
    configuration.write_text(
        f"no-daemon\nno-resolv\nno-hosts\nuser=root\nbind-interfaces\nlisten-address={SERVER4}\nlog-queries\n"
        "log-facility=-\nlocal=/lab.example/\nlocal-ttl=60\nauth-ttl=60\nneg-ttl=60\npid-file=\n"
        f"host-record=www.lab.example,{SERVER4},{SERVER6},60\n"
        f"host-record=short.lab.example,{SERVER4},2\nhost-record=inside.lab.example,{PRIVATE4},60\n"
        f"cname=alias.lab.example,www.lab.example,60\n{texts}\n"
    )
    process = path.start("dnsmasq", path.server, ["dnsmasq", f"--conf-file={configuration.absolute()}"])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with path.server.socket() as probe:
            if probe.connect_ex((SERVER4, 53)) == 0:
                break
        assert time.monotonic() < deadline, process.tail()
        time.sleep(0.05)
    try:
        yield process
    finally:
        process.stop()


def questions(server: Process, name: str) -> int:
    """How often the name server was asked for a name."""
    return len(re.findall(rf"query\[\w+\] {re.escape(name)} ", server.log.read_text() + server.out.read_text()))


@pytest.fixture(scope="module")
def server(tunnel: Bentpipe) -> Iterator[Process]:
    host.require(("dig", "dnsmasq"))
    with name_server(tunnel.path) as process:
        yield process


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_names_of_all_kinds(tunnel: Bentpipe, transport: str) -> None:
    assert dig(tunnel.path, transport, "www.lab.example").data == [SERVER4]
    assert dig(tunnel.path, transport, "www.lab.example", "AAAA").data == [SERVER6]
    assert dig(tunnel.path, transport, "alias.lab.example").data == ["www.lab.example.", SERVER4]
    assert dig(tunnel.path, transport, "nowhere.lab.example").status == "NXDOMAIN"
    assert dig(tunnel.path, transport, "localhost").data == ["127.0.0.1"]
    nothing = dig(tunnel.path, transport, "www.lab.example", "MX")
    assert (nothing.status, nothing.records) == ("NOERROR", [])


def test_the_second_time_the_name_server_is_not_asked(tunnel: Bentpipe, server: Process) -> None:
    name = "WWW.Lab.Example"
    assert dig(tunnel.path, name).data == [SERVER4]
    before = questions(server, "www.lab.example")
    assert before > 0
    again = dig(tunnel.path, name)
    assert f";{name}.\t" in again.text, "the question as it was asked"
    assert 1 <= int(again.records[0][1]) <= 60
    assert questions(server, "www.lab.example") == before


@pytest.mark.usefixtures("server")
def test_an_answer_too_long_for_a_datagram_comes_over_tcp(tunnel: Bentpipe) -> None:
    truncated = dig(tunnel.path, "+ignore", "long.lab.example", "TXT")
    assert "tc" in truncated.flags
    assert len(dig(tunnel.path, "long.lab.example", "TXT").records) == 40


@pytest.mark.usefixtures("server")
def test_a_private_address_is_refused(tunnel: Bentpipe) -> None:
    answer = dig(tunnel.path, "inside.lab.example")
    assert answer.status == "REFUSED"
    assert "EDE: 15" in answer.text
    assert "private address" in answer.text


@pytest.mark.usefixtures("server")
def test_what_is_no_question_is_told_so(tunnel: Bentpipe) -> None:
    with tunnel.path.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(PATIENCE_S)
        client.connect(RESOLVER)
        # Not a message, an answer, and then a question whose name points at itself: only that is answered.
        client.send(b"?")
        client.send(struct.pack("!6H", 1, 0x8180, 1, 0, 0, 0) + b"\x00\x00\x01\x00\x01")
        client.send(struct.pack("!6H", 2, 0x0100, 1, 0, 0, 0) + b"\xc0\x0c\x00\x01\x00\x01")
        reply = client.recv(512)
    identifier, flags = struct.unpack("!2H", reply[:4])
    assert (identifier, flags & 0xF) == (2, 1), "FORMERR"


@pytest.mark.usefixtures("server")
def test_many_questions_on_one_connection(tunnel: Bentpipe) -> None:
    def question(identifier: int) -> bytes:
        message = identifier.to_bytes(2) + WWW[2:]
        return struct.pack("!H", len(message)) + message

    with connect(tunnel.path.client, RESOLVER) as client, client.makefile("rb") as replies:
        client.sendall(b"".join(map(question, range(100))))
        client.shutdown(socket.SHUT_WR)
        seen = set()
        for _ in range(100):
            (length,) = struct.unpack("!H", replies.read(2))
            seen.add(struct.unpack("!H", replies.read(length)[:2])[0])
        assert seen == set(range(100))
        assert replies.read() == b""


@pytest.mark.usefixtures("server")
def test_others_may_not_ask(tunnel: Bentpipe) -> None:
    with tunnel.path.gateway.socket() as stranger:
        stranger.settimeout(PATIENCE_S)
        stranger.connect(RESOLVER)
        stranger.sendall(b"\x00\x11" + bytes(17))
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""


@pytest.mark.usefixtures("server")
def test_status_counts_questions(tunnel: Bentpipe) -> None:
    before = status(tunnel.terminal_config)["dns"]
    dig(tunnel.path, "www.lab.example")
    dig(tunnel.path, "www.lab.example")
    after = status(tunnel.terminal_config)["dns"]
    assert after["questions"] == before["questions"] + 2
    assert after["kept"] > before["kept"]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_whichever_name_server_is_asked_the_terminal_answers(tunnel: Bentpipe, transport: str) -> None:
    """Transparently, also where the address that is asked has no name server at all."""
    for at in (SERVER4, BLACKHOLE4):
        assert dig(tunnel.path, transport, "www.lab.example", at=at).data == [SERVER4]
    before = status(tunnel.terminal_config)["dns"]["kept"]
    dig(tunnel.path, transport, "www.lab.example", at=BLACKHOLE4)
    assert status(tunnel.terminal_config)["dns"]["kept"] == before + 1


@pytest.mark.usefixtures("server")
def test_questions_that_come_together_are_all_answered(tunnel: Bentpipe) -> None:
    """From one socket, without waiting, of a name that is known: so resolvers ask for IPv4 and IPv6."""
    dig(tunnel.path, "www.lab.example")
    for _ in range(5):
        with tunnel.path.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(PATIENCE_S)
            client.connect((BLACKHOLE4, 53))
            for identifier in range(8):
                client.send(identifier.to_bytes(2) + WWW[2:])
            assert {int.from_bytes(client.recv(512)[:2]) for _ in range(8)} == set(range(8))


def carried(tunnel: Bentpipe, name: str) -> int:
    """Bytes that status says were carried from a server of that name."""
    names = status(tunnel.terminal_config).get("names", [])
    return sum(each["down_bytes"] for each in names if each["name"] == name)


@pytest.mark.usefixtures("server")
def test_flows_know_their_names(tunnel: Bentpipe) -> None:
    """By what was asked, and by the TLS handshake where nothing was."""
    dig(tunnel.path, "www.lab.example")
    tunnel.path.client.run("curl", "-sS", "-o", "/dev/null", "--max-time", "90", f"http://{SERVER4}/2MB")
    eventually(lambda: carried(tunnel, "www.lab.example") >= 2_000_000, "its bytes are counted under its name")
    tunnel.path.server.ip("address", "add", f"{ANOTHER4}/32", "dev", "lo")
    tunnel.path.client.run(
        "curl", "-sS", "-k", "-o", "/dev/null", "--max-time", "90", "--resolve", f"{NAME}:443:{ANOTHER4}",
        f"https://{NAME}/2MB",
    )  # fmt: skip
    eventually(lambda: carried(tunnel, NAME) >= 2_000_000, "its bytes are counted under its name")


def test_without_a_gateway_what_was_known_is_answered(own_tunnel: Bentpipe) -> None:
    host.require(("dig", "dnsmasq"))
    with name_server(own_tunnel.path):
        assert dig(own_tunnel.path, "short.lab.example").data == [SERVER4]
        own_tunnel.gateway.stop()
        eventually(lambda: not status(own_tunnel.terminal_config)["sessions"], "the session is over")
        stale = dig(own_tunnel.path, "short.lab.example")
        assert stale.data == [SERVER4]
        unknown = dig(own_tunnel.path, "www.lab.example")
        assert unknown.status == "SERVFAIL"
        own_tunnel.start_gateway()
        eventually(lambda: bool(status(own_tunnel.terminal_config)["sessions"]), "there is a session again")
        assert dig(own_tunnel.path, "www.lab.example").data == [SERVER4]


def test_a_page_by_name(tunnel: Bentpipe, tmp_path: Path) -> None:
    """A client whose resolver is the terminal: the name through it, then the transfer."""
    resolv = tmp_path / "resolv.conf"
    resolv.write_text(f"nameserver {RESOLVER[0]}\n")
    fetch = tunnel.path.start(
        "curl", tunnel.path.client,
        ["curl", "-sS", "--fail", "--max-time", "90", "-o", tmp_path / "got", "http://origin.bentpipe.test/2MB"],
        {"/etc/resolv.conf": resolv},
    )  # fmt: skip
    eventually(lambda: fetch.exit_code is not None, "the transfer ends")
    assert fetch.exit_code == 0, fetch.tail()


def certificate(directory: Path, number: int) -> None:
    """Write the certificate and the key that the terminal shows, and at first an authority that made it."""
    made = {each: str(directory / each) for each in ("ca.key", "ca.pem", "dns.key", "dns.csr", "dns.pem", "names")}
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ca = ["-keyout", made["ca.key"], "-out", made["ca.pem"], "-subj", "/CN=authority"]
    Path(made["names"]).write_text(f"subjectAltName=DNS:{RESOLVER_NAME}\n")
    own = ["-keyout", made["dns.key"], "-out", made["dns.csr"], "-subj", f"/CN={RESOLVER_NAME}"]
    sign = ["-in", made["dns.csr"], "-CA", made["ca.pem"], "-CAkey", made["ca.key"], "-out", made["dns.pem"]]
    commands = [
        *([["req", "-x509", *curve, *ca]] if number == 1 else []),
        ["req", *curve, *own],
        ["x509", "-req", *sign, "-set_serial", str(number), "-extfile", made["names"]],
    ]
    for command in commands:
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    Path(made["dns.key"]).chmod(0o600)


def shown(path: Topology, ca: Path) -> str:
    """The number of the certificate that a client is shown, which believes the authority alone."""
    context = ssl.create_default_context(cafile=str(ca))
    with path.client.socket() as plain:
        plain.settimeout(PATIENCE_S)
        plain.connect((RESOLVER[0], DOT_PORT))
        with context.wrap_socket(plain, server_hostname=RESOLVER_NAME) as client:
            found = client.getpeercert()
            assert found is not None
            return str(found["serialNumber"])


def test_over_https_a_page_by_name(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    """curl asks the terminal by HTTPS for the server's name, and fetches from there."""
    host.require(("curl", "dnsmasq"))
    path, config = own_tunnel.path, own_tunnel.terminal_config
    own_tunnel.terminal.stop()
    directory = config.parent.absolute()
    certificate(directory, 1)
    files = f'certificate = "{directory}/dns.pem"\nkey = "{directory}/dns.key"\n'
    config.write_text(f'{config.read_text()}\n[dns.tls]\nhttps = ["{RESOLVER[0]}:{DOH_PORT}"]\n{files}')
    own_tunnel.start_terminal()
    url = f"https://{RESOLVER_NAME}:{DOH_PORT}/dns-query"
    secure = ["--cacert", str(directory / "ca.pem"), "--resolve", f"{RESOLVER_NAME}:{DOH_PORT}:{RESOLVER[0]}"]

    def curl(*argv: str) -> str:
        command = ["curl", "-sS", "--http2", "--max-time", f"{PATIENCE_S:.0f}", *secure, *argv]
        done = subprocess.run(path.client.command(command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    got = tmp_path / "got"
    with name_server(path):
        curl("--doh-url", url, "--fail", "-o", str(got), "http://origin.bentpipe.test/2MB")
        asked = base64.urlsafe_b64encode(WWW).decode().rstrip("=")
        head = curl("-D", "-", "-o", "/dev/null", f"{url}?dns={asked}").lower()
    assert "content-type: application/dns-message" in head
    assert re.search(r"cache-control: max-age=[1-9]", head)
    assert got.stat().st_size == 2_000_000
    message = ("-H", "Content-Type: application/dns-message", "--data-binary")
    for ask, code in (
        (("-d", "x", url), "415"),
        ((*message, "x", url), "400"),
        (("-X", "PUT", url), "405"),
        ((f"{url}?dns=*",), "400"),
        ((f"{url}?dns={7000 * 'x'}",), "414"),
        ((f"{url}?dns={20_000 * 'x'}",), "431"),
        ((f"https://{RESOLVER_NAME}:{DOH_PORT}/",), "404"),
    ):
        assert curl("-o", "/dev/null", "-w", "%{http_code}", *ask) == code, (ask, code)


def test_over_tls_with_a_certificate_that_can_be_renewed(own_tunnel: Bentpipe) -> None:
    host.require(("dig", "dnsmasq"))
    path, config = own_tunnel.path, own_tunnel.terminal_config
    own_tunnel.terminal.stop()
    directory = config.parent.absolute()
    certificate(directory, 1)
    files = f'certificate = "{directory}/dns.pem"\nkey = "{directory}/dns.key"\n'
    config.write_text(f'{config.read_text()}\n[dns.tls]\nlisten = ["{RESOLVER[0]}:{DOT_PORT}"]\n{files}')
    own_tunnel.start_terminal()
    ca = directory / "ca.pem"
    secure = (f"-p{DOT_PORT}", f"+tls-ca={ca}", f"+tls-hostname={RESOLVER_NAME}")
    with name_server(path):
        assert dig(path, *secure, "www.lab.example").data == [SERVER4]
        assert len(dig(path, *secure, "long.lab.example", "TXT").records) == 40
    assert shown(path, ca) == "01"
    certificate(directory, 2)
    own_tunnel.terminal.signal(signal.SIGHUP)
    eventually(lambda: shown(path, ca) == "02", "the new certificate is shown")
    (directory / "dns.pem").write_text("none")
    own_tunnel.terminal.signal(signal.SIGHUP)
    log = own_tunnel.terminal.log
    eventually(lambda: "keeps the certificate" in log.read_text(), "what is wrong is told")
    assert shown(path, ca) == "02"
