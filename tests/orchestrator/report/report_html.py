"""The content of a report, read back from its HTML."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "img", "br", "input"})


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str, **attributes: str) -> list["Element"]:
        """Every descendant of this tag with these attributes; `class_` is one of its classes."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                found += [child] * child.fits(tag, attributes) + child.all(tag, **attributes)
        return found

    def one(self, tag: str, **attributes: str) -> "Element":
        [found] = self.all(tag, **attributes)
        return found

    def fits(self, tag: str, attributes: dict[str, str]) -> bool:
        classes = self.attributes.get("class", "").split()
        given = {name: value for name, value in attributes.items() if name != "class_"}
        return (
            self.tag == tag
            and attributes.get("class_") in (None, *classes)
            and all(self.attributes.get(name.replace("_", "-")) == value for name, value in given.items())
        )

    def rows(self) -> list[list[str]]:
        """The text of each cell of a table's body."""
        [body] = self.all("tbody")
        return [[cell.text.strip() for cell in row.children if isinstance(cell, Element)] for row in body.all("tr")]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_html(text: str) -> Element:
    """The page as a tree; fails if a tag is not closed properly."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root], [each.tag for each in reader.open]
    return reader.root
