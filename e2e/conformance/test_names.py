"""DNS: names of all kinds, by datagram and by stream, where the proxy's clients ask for them."""

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.topology import SERVER4, SERVER6
from conformance.conftest import Proxy
from test_dns import dig, name_server


@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_names(proxy: Proxy, transport: str) -> None:
    """Names, aliases, names that do not exist and long answers."""
    host.require(("dig", "dnsmasq"))
    at = proxy.adapter.resolver[0] if proxy.adapter.resolver else SERVER4
    with name_server(proxy.path):
        assert dig(proxy.path, transport, "www.lab.example", at=at).data == [SERVER4]
        assert dig(proxy.path, transport, "www.lab.example", "AAAA", at=at).data == [SERVER6]
        assert dig(proxy.path, transport, "alias.lab.example", at=at).data == ["www.lab.example.", SERVER4]
        assert dig(proxy.path, transport, "nowhere.lab.example", at=at).status == "NXDOMAIN"
        assert len(dig(proxy.path, "long.lab.example", "TXT", at=at).records) == 40
