"""Page loads by the page loader, from outside the client's namespace."""

import json
import subprocess
import sys

from bentpipe_lab.net import content
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.programs.curl import STALL_S


def load(path: Topology, protocol: str) -> Outcome:
    """Load the page once over "http1" or "http2", in a program of its own inside the client's namespace."""
    order = [path.origin.objects[name] for name in content.page_sizes()]
    task = {
        "protocol": protocol,
        "base": f"https://{NAME}/" if protocol == "http2" else f"http://{NAME}/",
        "resolve": [f"{NAME}:{port}:{SERVER4}" for port in (80, 443)],
        "authority": str(path.origin.certificate),
        "stall_s": STALL_S,
        "objects": [{"path": item.path, "size": item.size, "sha256": item.sha256} for item in order],
    }
    done = subprocess.run(
        path.client.command([sys.executable, "-m", "bentpipe_lab.workloads.programs.pageload"]),
        input=json.dumps(task), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        return Outcome(Verdict.FAILED, detail=done.stderr.strip()[-400:])
    outcome = json.loads(done.stdout)
    return Outcome(
        Verdict(outcome["verdict"]),
        outcome["seconds"],
        outcome["bytes_received"],
        outcome["detail"],
        objects=outcome["objects"],
    )
