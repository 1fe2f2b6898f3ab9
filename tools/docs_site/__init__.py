"""The documentation site: what `mkdocs.yml` cannot say by itself."""
