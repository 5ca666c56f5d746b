"""A client of Chromium by the contract of docs/matrix.md: a fresh profile, QUIC forced, the file by its download."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlparse

POLL_S = 0.1


def key_pin() -> str:
    """SHA-256 of the server's public key, which stands in for an authority in a fresh profile."""
    public = subprocess.run(
        ["openssl", "x509", "-in", "/certs/cert.pem", "-pubkey", "-noout"], capture_output=True, check=True
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"], input=public, capture_output=True, check=True
    ).stdout
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def fetch(address: str) -> bool:
    """Have the browser download one file; it is whole when the browser has renamed it."""
    target = urlparse(address)
    downloads = Path(tempfile.mkdtemp(prefix="downloads-"))
    profile = Path(tempfile.mkdtemp(prefix="profile-"))
    (profile / "Default").mkdir()
    preferences = {"download": {"default_directory": str(downloads), "prompt_for_download": False}}
    (profile / "Default" / "Preferences").write_text(json.dumps(preferences))
    browser = subprocess.Popen(
        [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={profile}", f"--ssl-key-log-file={os.environ['SSLKEYLOGFILE']}",
            f"--origin-to-force-quic-on={target.hostname}:{target.port or 443}",
            f"--ignore-certificate-errors-spki-list={key_pin()}", address,
        ]
    )  # fmt: skip
    wanted = downloads / Path(target.path).name
    try:
        while browser.poll() is None:
            if wanted.exists() and not list(downloads.glob("*.crdownload")):
                shutil.copyfile(wanted, Path("/downloads") / wanted.name)
                return True
            time.sleep(POLL_S)
    finally:
        browser.terminate()
    return False


if __name__ == "__main__":
    sys.exit(0 if all(fetch(address) for address in os.environ["REQUESTS"].split()) else 1)
