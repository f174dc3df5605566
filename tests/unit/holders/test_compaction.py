"""How long compaction may take: the number that docs/privacy.md promises."""

from pathlib import Path

from streams.holders.compaction import compaction_bound_s
from streams.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "privacy.md"


def test_the_page_on_privacy_tells_the_bound_that_default_settings_give() -> None:
    assert f"= {compaction_bound_s(Settings()):,.0f} s" in PAGE.read_text()


def test_a_segment_is_closed_by_its_age_or_by_the_compaction_lag_whichever_is_shorter() -> None:
    by_age = compaction_bound_s(Settings(compacted_segment_s=100.0, compaction_lag_s=300.0))
    assert by_age == compaction_bound_s(Settings(compacted_segment_s=300.0, compaction_lag_s=100.0))
    assert compaction_bound_s(Settings(compacted_segment_s=300.0, compaction_lag_s=300.0)) == by_age + 200.0
