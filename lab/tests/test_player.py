"""The player's clock: when a video begins, and when it waits."""

import hashlib
from typing import Any

from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.workloads.programs.player import Clock, play


def task(count: int) -> dict[str, Any]:
    segments = [
        {"name": f"{number}.ts", "path": f"v/{number}.ts", "sha256": hashlib.sha256(b"%d" % number).hexdigest()}
        for number in range(count)
    ]
    return {"segment_s": 2.0, "before_start": 2, "ahead_s": 6.0, "playlist": "v/video.m3u8", "segments": segments}


class Server:
    """Answers after a time of its own, on a clock of its own."""

    def __init__(self, takes_s: float) -> None:
        self.at, self.takes_s, self.slept = 0.0, takes_s, 0.0
        self.wrong = -1

    def fetch(self, path: str) -> bytes:
        self.at += self.takes_s
        if path.endswith(".m3u8"):
            return b"#EXTM3U\n0.ts\n1.ts\n2.ts\n3.ts\n4.ts\n"
        number = int(path.removeprefix("v/").removesuffix(".ts"))
        return b"other" if number == self.wrong else b"%d" % number

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.slept += seconds


def played(server: Server) -> Any:
    return play(task(5), server.fetch, lambda: server.at, server.sleep)


def test_a_link_that_is_faster_than_the_video_never_waits_and_fetches_no_further_ahead_than_it_may() -> None:
    server = Server(0.5)
    outcome = played(server)
    assert outcome.verdict is Verdict.OK
    assert outcome.seconds == 1.5
    assert outcome.metrics["rebuffering_s"] == 0
    assert server.slept > 0


def test_a_link_that_is_slower_waits_when_the_buffer_is_empty() -> None:
    outcome = played(Server(3.0))
    # Segments are there at 6, 9, 12, 15, 18 s; it begins at 9 s, has played four at 17 s, and waits for the fifth.
    assert outcome.seconds == 9
    assert outcome.metrics["stalls"] == 1
    assert outcome.metrics["rebuffering_s"] == 1


def test_a_segment_that_is_another_is_wrong_content() -> None:
    server = Server(0.1)
    server.wrong = 3
    assert played(server).verdict is Verdict.WRONG_CONTENT


def test_the_clock_waits_only_for_what_is_not_there() -> None:
    assert Clock(2.0, 1, [1.0, 2.0, 3.0]).waits() == []
    assert Clock(2.0, 1, [1.0, 4.0, 5.0]).waits() == [1.0]
