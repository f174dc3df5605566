"""The recordings, ingested against the pure core: once for all files that look at what became of them."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from connectors.sources.ingest import IngestReport, run_ingest
from tests.support.import_service import ImportService


class Ingested:
    """All recordings, each record read back and compared. Whoever looks changes nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service = ImportService()
        self.report: IngestReport = asyncio.run(run_ingest([folder], self.service, check=True))
        assert self.report.check is not None
        self.counts: Counter[str] = self.report.check.counts


@pytest.fixture(scope="session")
def ingested(recordings: Path) -> Ingested:
    return Ingested(recordings)
