"""Bound a function that recurses: by depth, or by the number of calls below the outermost one.

Prints:
    3 levels: 7 pages
    a trap: budget 'crawl_depth': asked for 1, but 0 of 3 is left
    a wide site: budget 'pages': asked for 1, but 0 of 10 is left
"""

from flyball import BudgetExceeded, bounded

Site = dict[str, list[str]]


@bounded("crawl_depth", 3, counts="depth")
def crawl(site: Site, page: str) -> int:
    return 1 + sum(crawl(site, link) for link in site.get(page, []))


@bounded("pages", 10)
def visit(site: Site, page: str) -> int:
    return 1 + sum(visit(site, link) for link in site.get(page, []))


tree = {"/": ["/a", "/b"], "/a": ["/a/1", "/a/2"], "/b": ["/b/1", "/b/2"]}
print(f"3 levels: {crawl(tree, '/')} pages")

for what, function, site in [
    ("a trap", crawl, {"/": ["/"]}),
    ("a wide site", visit, {"/": [f"/{n}" for n in range(100)]}),
]:
    try:
        function(site, "/")
    except BudgetExceeded as error:
        print(f"{what}: {error}")
