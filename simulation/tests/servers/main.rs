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
    pub(crate) mod algorithm {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Algorithm {
            FixedWindow,
            TokenBucket,
            SlidingWindow,
            SlidingLog,
            LeakyBucket,
        }

        pub(crate) struct Facts {
            pub(crate) name: &'static str,
            pub(crate) number: u8,
        }

        impl Algorithm {
            pub(crate) const EACH: &'static [Self] =
                &[Self::FixedWindow, Self::TokenBucket, Self::SlidingWindow, Self::SlidingLog, Self::LeakyBucket];

            pub(crate) const fn facts(self) -> Facts {
                let (name, number) = match self {
                    Self::FixedWindow => ("fixed_window", 1),
                    Self::TokenBucket => ("token_bucket", 2),
                    Self::SlidingWindow => ("sliding_window", 3),
                    Self::SlidingLog => ("sliding_log", 4),
                    Self::LeakyBucket => ("leaky_bucket", 5),
                };
                Facts { name, number }
            }
        }
    }
}
