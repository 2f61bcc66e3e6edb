//! One client, one counter: who writes the same thing in another way is neither counted afresh nor left
//! uncounted, and what cannot be told for certain shares one counter.
//!
//! What an application sees is said by the parsers it uses, wherever that matters.

mod ambiguous;
mod choices;
mod cookies;
mod credentials;
mod documented;
#[cfg(feature = "config")]
mod files;
mod headers;
mod mutations;
mod queries;
mod rig;
