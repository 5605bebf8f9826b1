"""Trees, layers and OCI bytes: pure knowledge of what may ship and how it looks on disk. Knows no engine, no runtime and no cache kind."""
