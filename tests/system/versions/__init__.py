"""Clusters of two versions on three real processes, which are upgraded and go back."""
