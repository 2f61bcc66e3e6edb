//! The code that a line in the table of algorithms generates.
//!
//! The macro makes of the lines the public enum `Algorithm` and the functions that call the module of each variant,
//! so that there is one place that lists the algorithms, in `mod.rs`. It dispatches by `match`, without a virtual
//! call.

/// Makes the algorithms of lines: a name for the variant, and the module that has its facts and arithmetic.
///
/// A module has `FACTS: Facts`, and the functions `decide`, `adjust` and `most_units`. Its name is that of the
/// algorithm, in files, in errors and in Lua: `lua/NAME.lua` defines the function `NAME`.
///
/// | function | from | to |
/// | --- | --- | --- |
/// | `decide` | state, now, rule, cost, floor | the step; nothing is written |
/// | `adjust` | state, now, rule, change | the units changed, and the state to keep |
/// | `most_units` | the window in ticks | the largest limit for which both are exact |
///
/// The number of a variant in its enum is its place in the table of facts.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $variant:ident => $module:ident,)+) => {
        /// How units are counted against a [`Quota`](crate::Quota).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Algorithm {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nIts name in files is `\"", stringify!($module), "\"`.")]
                $variant,
            )+
            /// That of bans, which no quota of a policy has.
            #[doc(hidden)]
            Ban,
        }

        impl Algorithm {
            /// Each algorithm of quotas once.
            pub(crate) const EACH: &'static [Algorithm] = &[$(Algorithm::$variant),+];

            /// The same, and behind them that of bans.
            pub(crate) const WITH_BAN: &'static [Algorithm] = &[$(Algorithm::$variant,)+ Self::Ban];

            /// Returns the name this algorithm has in files and in Lua.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Algorithm::$variant => stringify!($module),)+
                    Self::Ban => "ban",
                }
            }

            /// Returns the facts about it.
            #[inline]
            pub(crate) const fn facts(self) -> &'static Facts {
                static FACTS: [Facts; Algorithm::WITH_BAN.len()] = [$($module::FACTS,)+ ban::FACTS];
                &FACTS[self as usize]
            }

            /// The most units of a limit over this window, in ticks, for which every decision is exact.
            pub(crate) const fn most_units(self, window: u64) -> u64 {
                match self {
                    $(Algorithm::$variant => $module::most_units(window),)+
                    Self::Ban => ban::most_units(window),
                }
            }

            /// Decides one check on the stored state, without changing it. Times are ticks.
            #[inline]
            pub(crate) fn decide(self, rule: Rule, state: Option<&State>, now: u64, cost: u64, floor: u64) -> Step {
                let decide = match self {
                    $(Algorithm::$variant => $module::decide,)+
                    Self::Ban => ban::decide,
                };
                decide(state, now, rule, cost.min(MOST_UNITS), floor.min(MOST_UNITS))
            }

            /// Refunds or charges units after the fact.
            #[inline]
            pub(crate) fn adjust(self, rule: Rule, state: Option<&State>, now: u64, change: Adjustment) -> Adjusted {
                let adjust = match self {
                    $(Algorithm::$variant => $module::adjust,)+
                    Self::Ban => ban::adjust,
                };
                adjust(state, now, rule, change)
            }
        }
    };
}
