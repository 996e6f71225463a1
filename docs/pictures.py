"""Pictures of `results/` on the site: pages link to them by their paths in the repository, which GitHub also shows."""

from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent


def on_files(files, config):
    """Called by MkDocs with the files of the site."""
    for path in sorted((ROOT / "results").glob("*/*.png")):
        files.append(File(str(path.relative_to(ROOT)), str(ROOT), config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    return markdown.replace("(../results/", "(results/")
