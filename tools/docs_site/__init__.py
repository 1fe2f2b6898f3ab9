"""The hooks and generators of the documentation site, which `mkdocs.yml` cannot express."""
