"""A clone of a Git repository over the network."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.netns import checked
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.programs import Debian
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Workload
from bentpipe_lab.workloads.parts import command, listening, tree

GIT = Debian("git")
PORT = 9418
ROUND_TRIPS = 3
"""Capabilities, references, objects (Git's protocol, version 2)."""
LEAST_BYTES = 1_500_000
AUTHOR = ("-c", "user.name=bentpipe", "-c", "user.email=lab@bentpipe.test")


class GitClone(Workload):
    """`git clone` of 201 files from `git daemon`, over TCP alone."""

    name = "git clone"
    order = 110
    measures = "time to the end of the command"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    programs = (GIT,)

    def run(self, path: Topology) -> Outcome:
        """Clone it into a new directory; what is checked out is to be what was committed."""
        base = path.directory.absolute() / "git"
        wanted = _repository(base / "repository")
        if not path.runs("git-daemon"):
            daemon = path.start("git-daemon", path.server, [
                GIT.found(), "-c", "safe.directory=*", "daemon", "--export-all", "--reuseaddr", f"--base-path={base}",
                f"--port={PORT}", f"--listen={SERVER4}", str(base),
            ])  # fmt: skip
            listening.wait(path.server, PORT, daemon)
        with tempfile.TemporaryDirectory(prefix="bentpipe-") as place:
            copy = Path(place, "copy")
            return command.run(
                path, [str(GIT.found()), "clone", "--quiet", f"git://{SERVER4}:{PORT}/repository", str(copy)],
                lambda: "" if tree.digest(copy) == wanted else "the clone differs from the repository",
                tree.size(base / "repository"),
            )  # fmt: skip

    def bound_s(self, link: Link) -> float:
        """Its dependent round trips and its bytes on the forward link."""
        return bounds.download_s(link, LEAST_BYTES, ROUND_TRIPS)


def _repository(root: Path) -> str:
    wanted = tree.write(root)
    if not (root / ".git").exists():
        git = [str(GIT.found()), "-C", str(root), *AUTHOR]
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "everything"]):
            checked([*git, *words])
    return wanted
