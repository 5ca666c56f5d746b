"""A tree of files by rsync."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.programs import Debian
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Workload
from bentpipe_lab.workloads.parts import command, listening, tree

RSYNC = Debian("rsync")
PORT = 8873
ROUND_TRIPS = 4
"""Greeting, module, list of files, contents."""
LEAST_BYTES = 1_500_000
CONFIGURATION = (
    "use chroot = no\nreverse lookup = no\n[files]\npath = {root}\nread only = yes\nuid = root\ngid = root\n"
)


class Rsync(Workload):
    """201 files from an rsync daemon into an empty directory."""

    name = "rsync"
    order = 111
    measures = "time to the end of the command"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    programs = (RSYNC,)

    def run(self, path: Topology) -> Outcome:
        """Fetch the tree; the copy is to be the same."""
        base = path.directory.absolute() / "rsync"
        wanted = tree.write(base / "files")
        if not path.runs("rsyncd"):
            configuration = base / "rsyncd.conf"
            configuration.write_text(CONFIGURATION.format(root=base / "files"))
            daemon = path.start("rsyncd", path.server, [
                RSYNC.found(), "--daemon", "--no-detach", f"--config={configuration}", f"--port={PORT}",
                f"--address={SERVER4}",
            ])  # fmt: skip
            listening.wait(path.server, PORT, daemon)
        with tempfile.TemporaryDirectory(prefix="bentpipe-") as place:
            copy = Path(place, "copy")
            return command.run(
                path, [str(RSYNC.found()), "--archive", f"rsync://{SERVER4}:{PORT}/files/", str(copy)],
                lambda: "" if tree.digest(copy) == wanted else "the copy differs from the server's files",
                tree.size(base / "files"),
            )  # fmt: skip

    def bound_s(self, link: Link) -> float:
        """Its dependent round trips and its bytes on the forward link."""
        return bounds.download_s(link, LEAST_BYTES, ROUND_TRIPS)
