"""Pages that quote files: what stands in a page is what the tests run. `python -m tests.support.pages` quotes anew."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CONSUMING = REPOSITORY / "docs" / "consuming.md"
_QUOTED = re.compile(r"<!-- (?P<what>file|run): (?P<name>\S+) -->\n```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL)


def quoted(page: Path, what: str = "file") -> dict[str, str]:
    """The blocks of a page under a `<!-- file: path -->` or a `<!-- run: name -->`."""
    return {match["name"]: match["text"] for match in _QUOTED.finditer(page.read_text()) if match["what"] == what}


def quote_anew(page: Path) -> None:
    def block(match: re.Match[str]) -> str:
        if match["what"] != "file":
            return match[0]
        text = (REPOSITORY / match["name"]).read_text()
        return f"<!-- file: {match['name']} -->\n```{match['language']}\n{text}```\n"

    page.write_text(_QUOTED.sub(block, page.read_text()))


if __name__ == "__main__":
    quote_anew(CONSUMING)
