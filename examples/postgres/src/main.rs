//! A small HTTP server with limits in PostgreSQL.

fn main() {}
