//! Bodies whose bytes are limited. What needs a server is among the tests of the root.

mod bodies;
mod invalid;
mod panics;
mod requests;
mod rig;
mod support;
mod terms;
