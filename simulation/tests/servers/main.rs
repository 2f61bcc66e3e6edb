//! The simulated server and a real one: the same commands and scripts on both, answered with the same bytes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod calls;
mod cluster;
mod connections;
mod pair;
mod real;
mod rows;
mod scripts;
mod sources;
mod tollgate_scripts;

/// What the crate's own files about scripts refer to.
mod core {
    pub(crate) mod quota {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Algorithm {
            FixedWindow,
            SlidingLog,
            SlidingWindow,
            TokenBucket,
            LeakyBucket,
        }

        impl Algorithm {
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    Self::FixedWindow => "fixed_window",
                    Self::SlidingLog => "sliding_log",
                    Self::SlidingWindow => "sliding_window",
                    Self::TokenBucket => "token_bucket",
                    Self::LeakyBucket => "leaky_bucket",
                }
            }
        }
    }
}
