//! The simulated server and a real one: the same commands and scripts on both, answered with the same bytes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod calls;
mod cluster;
mod connections;
mod pair;
mod ratio_script;
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
            Ban,
        }

        pub(crate) enum Layout {
            Count,
            Falling,
            Counts,
            Log,
        }

        pub(crate) struct Facts {
            pub(crate) number: u8,
            pub(crate) layout: Layout,
        }

        impl Algorithm {
            pub(crate) const WITH_BAN: &'static [Self] = &[
                Self::FixedWindow,
                Self::TokenBucket,
                Self::SlidingWindow,
                Self::SlidingLog,
                Self::LeakyBucket,
                Self::Ban,
            ];

            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    Self::FixedWindow => "fixed_window",
                    Self::TokenBucket => "token_bucket",
                    Self::SlidingWindow => "sliding_window",
                    Self::SlidingLog => "sliding_log",
                    Self::LeakyBucket => "leaky_bucket",
                    Self::Ban => "ban",
                }
            }

            pub(crate) const fn facts(self) -> Facts {
                let layout = match self {
                    Self::FixedWindow => Layout::Count,
                    Self::TokenBucket | Self::LeakyBucket => Layout::Falling,
                    Self::SlidingWindow | Self::Ban => Layout::Counts,
                    Self::SlidingLog => Layout::Log,
                };
                Facts { number: self as u8 + 1, layout }
            }
        }
    }
}
