"""The pages of the documentation: their code blocks, headings and links."""

from __future__ import annotations

import re
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "project"
FENCE = re.compile(r"( *)(`{3,}|~{3,})[ \t]*([^\n]*)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINKS = (
    re.compile(r"\]\(\s*<?([^)\s>]*)>?(?:\s+\"[^\"]*\")?\s*\)"),
    re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE),
    re.compile(r"\b(?:src|srcset|href)=\"([^\"]*)\""),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `comments` are those directly above it, `<!-- KEY: VALUE -->`, by key."""

    page: str
    line: int
    language: str
    text: str
    comments: dict[str, str]

    def report(self, message: str, line: int = 0) -> str:
        """Return a message about the block, or about one of its lines, counted from 1."""
        return f"{self.page}:{self.line + line}: {message}"


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a page to a file, to a heading, or to both."""

    line: int
    target: str


def list_pages(root: Path = ROOT) -> list[Path]:
    """Return README.md, CONTRIBUTING.md and the pages of docs/ that exist below a folder."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in pages if page.is_file()]


def label_page(page: Path, root: Path = ROOT) -> str:
    return page.relative_to(root).as_posix()


def read_blocks(page: Path, root: Path = ROOT) -> list[Block]:
    """Return the fenced blocks of a page, without the indentation of the list they are in.

    Raises ValueError for a fence that is not closed.
    """
    lines = page.read_text(encoding="utf-8").split("\n")
    name, blocks = label_page(page, root), []
    above, n = -1, 0
    while n < len(lines):
        fence = FENCE.fullmatch(lines[n])
        if fence is None:
            n += 1
            continue
        indent, ticks, info = fence.groups()
        end = n + 1
        while end < len(lines) and not re.fullmatch(
            rf" *{ticks[0]}{{{len(ticks)},}} *", lines[end]
        ):
            end += 1
        if end == len(lines):
            raise ValueError(f"{name}:{n + 1}: got a fence that is not closed, expected {ticks}")
        body = [
            line[min(len(indent), len(line) - len(line.lstrip())) :] for line in lines[n + 1 : end]
        ]
        text = "".join(f"{line}\n" for line in body)
        language = info.split()[0] if info.strip() else ""
        blocks.append(Block(name, n + 1, language, text, _read_comments(lines[above + 1 : n])))
        above = end
        n = end + 1
    return blocks


def _read_comments(lines: list[str]) -> dict[str, str]:
    """Return the comments that end the lines."""
    comments: dict[str, str] = {}
    while lines and lines[-1].rstrip().endswith("-->"):
        start = len(lines) - 1
        while start > 0 and not lines[start].lstrip().startswith("<!--"):
            start -= 1
        comment = "\n".join(lines[start:]).strip().removeprefix("<!--").removesuffix("-->")
        key, _, value = comment.partition(":")
        comments[key.strip()] = textwrap.dedent(value).strip()
        lines = lines[:start]
    return comments


def hide(text: str, *patterns: re.Pattern[str]) -> str:
    """Return the text with spaces in place of what matches; each line keeps its number."""
    for pattern in patterns:
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return text


def hide_blocks(text: str) -> str:
    """Return a page with empty lines in place of its fenced blocks."""
    lines, fence = [], ""
    for line in text.split("\n"):
        match = FENCE.fullmatch(line)
        if fence:
            if match and match[2].startswith(fence) and not match[3]:
                fence = ""
            lines.append("")
        elif match:
            fence = match[2]
            lines.append("")
        else:
            lines.append(line)
    return "\n".join(lines)


def list_anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub forms them, and its explicit ones."""
    text = hide_blocks(text)
    anchors = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    count: dict[str, int] = {}
    for title in HEADING.findall(hide(text, COMMENT)):
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        seen = count.get(slug, 0)
        count[slug] = seen + 1
        anchors.add(f"{slug}-{seen}" if seen else slug)
    return anchors


def list_links(text: str) -> list[Link]:
    """Return the links of a page's prose, in the order of their lines."""
    text = hide(hide_blocks(text), COMMENT, CODE)
    links = [
        Link(text.count("\n", 0, match.start(1)) + 1, match[1].split(",")[0].strip())
        for pattern in LINKS
        for match in pattern.finditer(text)
    ]
    return sorted(links, key=lambda link: link.line)


def make_project(folder: Path) -> Path:
    """Return a copy of what blocks are run on: the examples, the tutorials and the stand-ins.

    Commands name files of this repository too; those that write leave them alone.
    """
    for source in (ROOT / "docs" / "examples", ROOT / "tests" / "corpora" / "tutorials", STAND_INS):
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=_ignored)
    for name in ("docs/examples", "kernels", "tests/support"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True, ignore=_ignored)
    right, scaled = ((folder / name).read_text() for name in ("right.py", "scaled.py"))
    scaled = re.sub(r"\bkernel\b", "scaled_kernel", scaled)
    (folder / "my_kernels.py").write_text(f"{right}\n\n{scaled}")
    (folder / "my_package").mkdir()
    (folder / "my_package" / "gemm.py").write_text(right)
    (folder / "pyproject.toml").write_text("[tool.gemmproof]\nsaved-cases = false\n")
    return folder


_ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
