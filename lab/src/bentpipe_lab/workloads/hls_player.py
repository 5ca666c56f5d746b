"""A video by HTTP Live Streaming: how soon it begins, and how long it waits."""

import math
from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.workloads.contract import Metric, Option, Workload
from bentpipe_lab.workloads.programs import inside

SEGMENT_S, SEGMENTS = 2.0, 10
BEFORE_START = 2
AHEAD_S = 12.0
"""As far ahead as it fetches."""
RATES = {"1 Mbit/s": 1.0, "2 Mbit/s": 2.0, "4 Mbit/s": 4.0, "8 Mbit/s": 8.0, "16 Mbit/s": 16.0}
ROUND_TRIPS = 3
"""TLS, the playlist, the first segment."""


class HlsPlayer(Workload):
    """20 s of video in segments of 2 s over one connection; a player's buffer against a clock, without a decoder."""

    name = "hls player"
    order = 113
    measures = "time until the video begins"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    overhead_s = 60.0
    options: ClassVar[Mapping[str, Option]] = {"rate": Option("4 Mbit/s", tuple(RATES))}
    metrics: ClassVar[Mapping[str, Metric]] = {
        "startup_s": Metric("until the video begins", "s"),
        "rebuffering_s": Metric("waiting for segments", "s"),
        "rebuffering_percent": Metric("waiting, share of the video's length", "%"),
        "stalls": Metric("times that it waited", ""),
    }

    def run(self, path: Topology) -> Outcome:
        """Play it once."""
        size = self._segment_bytes()
        directory = f"hls-{size}"
        segments = []
        for number in range(SEGMENTS):
            name = f"{directory}/{number}.ts"
            if name not in path.origin.objects:
                path.origin.objects[name] = content.write_file(
                    path.origin.root, name, content.incompressible(name, size)
                )
            segments.append({"name": f"{number}.ts", "path": name, "sha256": path.origin.objects[name].sha256})
        lines = ["#EXTM3U", "#EXT-X-VERSION:3", f"#EXT-X-TARGETDURATION:{math.ceil(SEGMENT_S)}"]
        for segment in segments:
            lines += [f"#EXTINF:{SEGMENT_S},", segment["name"]]
        playlist = f"{directory}/video.m3u8"
        content.write_file(path.origin.root, playlist, "\n".join([*lines, "#EXT-X-ENDLIST", ""]).encode())
        return inside.task(path, "player", {
            "base": f"https://{NAME}/", "resolve": [f"{NAME}:443:{SERVER4}"], "playlist": playlist,
            "authority": str(path.origin.certificate), "segments": segments, "segment_s": SEGMENT_S,
            "before_start": BEFORE_START, "ahead_s": AHEAD_S,
        })  # fmt: skip

    def bound_s(self, link: Link) -> float:
        """Its dependent round trips, and two segments on the forward link."""
        return bounds.download_s(link, BEFORE_START * self._segment_bytes(), ROUND_TRIPS)

    def _segment_bytes(self) -> int:
        return round(RATES[self.option("rate")] * 1e6 / 8 * SEGMENT_S)
