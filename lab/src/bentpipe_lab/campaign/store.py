"""The store of a campaign's runs: a directory here, or any place that fsspec reaches."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec

from bentpipe_lab.campaign.unit import Run
from bentpipe_lab.errors import CampaignError
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.room import room

RESULT = "result.json"
"""Written last: a run that has it is complete."""
RESULT_SCHEMA = "bentpipe/lab/run/1"
RECORDS = "records.jsonl"
SAMPLES = "samples.jsonl"
PROVENANCE = "provenance.json"
RESUME = "`bentpipe-lab resume`"
"""What to do when there is room again."""


class Store:
    """Directories of runs below a URL or a path."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._files, self._root = fsspec.url_to_fs(url)
        except (ImportError, OSError, ValueError) as error:
            raise CampaignError(f"the store {url} is not to be reached: {error}") from error

    @property
    def local(self) -> Path | None:
        """Where it is, when it is a directory of this machine."""
        return Path(self._root) if "file" in _protocols(self._files) else None

    @property
    def lasting(self) -> bool:
        """Whether another process finds again what is kept there."""
        return "memory" not in _protocols(self._files)

    def tried(self) -> None:
        """Raise where nothing can be kept."""
        written, whole = f"{self._root}/{RESULT}.part", f"{self._root}/tried"
        try:
            self._files.makedirs(self._root, exist_ok=True)
            self._files.pipe_file(written, b"tried")
            self._files.mv(written, whole)
            self._files.rm_file(whole)
        except Exception as error:
            raise CampaignError(f"runs cannot be kept in the store {self.url}: {error}") from error

    def put(self, run: Run, files: Mapping[str, str | bytes]) -> None:
        """Keep a run's files; its result is written last, and whole or not at all."""
        directory = f"{self._root}/{run.directory}"
        with room(directory, RESUME):
            self._files.makedirs(directory, exist_ok=True)
            for name in sorted(files, key=lambda name: name == RESULT):
                whole = f"{directory}/{name}"
                written = f"{whole}.part" if name == RESULT else whole
                try:
                    content = files[name]
                    self._files.pipe_file(written, content.encode() if isinstance(content, str) else content)
                except OSError:
                    with contextlib.suppress(OSError):
                        self._files.rm_file(written)
                    raise
                if written != whole:
                    self._files.mv(written, whole)

    def keep(self, name: str, text: str) -> None:
        """Keep a text that belongs to no single run, a path's log for example."""
        with room(name, RESUME):
            self._files.makedirs(f"{self._root}/{name}".rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(f"{self._root}/{name}", text.encode())

    def has(self, run: Run) -> bool:
        """Whether a run is complete."""
        return bool(self._files.exists(f"{self._root}/{run.directory}/{RESULT}"))

    def result(self, run: Run) -> dict[str, Any]:
        """What came of a run; an error where it is damaged, or of another version of the lab."""
        where = f"{self.url}/{run.directory}/{RESULT}"
        try:
            result = json.loads(self.text(run, RESULT))
            schema = result["schema"]
        except (ValueError, TypeError, KeyError) as error:
            raise CampaignError(
                f"{where} is damaged; without its directory `bentpipe-lab resume` does the run again"
            ) from error
        if schema != RESULT_SCHEMA or result["verdict"] not in set(Verdict):
            raise CampaignError(
                f"{where} is of another version of the lab: {schema}, verdict {result.get('verdict')!r}"
            )
        return dict(result)

    def text(self, run: Run, name: str) -> str:
        """One file of a run."""
        content: bytes = self._files.cat_file(f"{self._root}/{run.directory}/{name}")
        return content.decode()

    def holds(self, run: Run, name: str) -> bool:
        """Whether a run has a file of that name."""
        return bool(self._files.exists(f"{self._root}/{run.directory}/{name}"))

    def complete(self) -> Iterator[Run]:
        """All runs that are complete, in no particular order."""
        if not self._files.exists(self._root):
            return
        for path in self._files.glob(f"{self._root}/*/*/{RESULT}"):
            point, name, _ = str(path).rsplit("/", 3)[-3:]
            yield Run.of_directory(f"{point}/{name}")


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
