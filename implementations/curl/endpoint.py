"""A client of curl with HTTP/3 by the contract of docs/matrix.md."""

import os
from pathlib import Path
from urllib.parse import urlparse

from curl_cffi import Curl, CurlHttpVersion, CurlOpt

curl = Curl()
curl.setopt(CurlOpt.HTTP_VERSION, CurlHttpVersion.V3ONLY)
curl.setopt(CurlOpt.CAINFO, b"/certs/ca.pem")
curl.setopt(CurlOpt.FAILONERROR, 1)
for request in os.environ["REQUESTS"].split():
    with (Path("/downloads") / Path(urlparse(request).path).name).open("wb") as sink:
        curl.setopt(CurlOpt.URL, request.encode())
        curl.setopt(CurlOpt.WRITEDATA, sink)
        curl.perform()
