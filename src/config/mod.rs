//! Policies from a TOML file.
