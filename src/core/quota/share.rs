//! Parts of a quota, for regions or processes that count by themselves.

use std::num::NonZeroU32;

use super::Quota;
use super::bounds::Fault;
use crate::core::Error;
use crate::core::algorithm::Capacity;

impl Quota {
    /// Returns one of `of` equal parts of the quota, for regions or processes that count by themselves: that with this
    /// index, from 0.
    ///
    /// The limit is divided, and so are the burst, the places of a queue and the requests that start at once. What
    /// remains of a division goes to the first parts, one unit each, so all parts together are the quota. Parts can be
    /// divided again: `quota.share(region, regions).share(instance, instances)`.
    ///
    /// A key that uses one part only has no more than that part.
    ///
    /// # Panics
    ///
    /// Where [`try_share`](Self::try_share) returns an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use tollgate::Quota;
    ///
    /// let regions = NonZeroU32::new(3).expect("not zero");
    /// let limits = [0, 1, 2].map(|region| Quota::per_second(1_000).share(region, regions).limit());
    /// assert_eq!(limits, [334, 333, 333]);
    /// ```
    pub const fn share(self, index: u32, of: NonZeroU32) -> Self {
        match self.checked_share(index, of) {
            Ok(share) => share,
            Err(ShareFault::NoPart) => panic!("there is no part with this index"),
            Err(ShareFault::EmptyLimit | ShareFault::EmptyBurst) => panic!("the quota has fewer units than parts"),
            Err(ShareFault::Bounds(_)) => panic!("the burst or queue is too large for the limit of a part"),
        }
    }

    /// As [`share`](Self::share).
    ///
    /// # Errors
    ///
    /// If there are no more than `index` parts, a part would have no units, or its burst or queue would be beyond the
    /// [bounds](Self#bounds) for its limit.
    pub fn try_share(self, index: u32, of: NonZeroU32) -> Result<Self, Error> {
        self.checked_share(index, of).map_err(|fault| {
            Error::invalid(match fault {
                ShareFault::NoPart => format!("there is no part {index} of {of}: count from 0, up to {}", of.get() - 1),
                ShareFault::EmptyLimit => format!(
                    "limit {} leaves some of {of} parts empty: give at least {of}, over a longer window if need be",
                    self.limit
                ),
                ShareFault::EmptyBurst => {
                    format!("burst {} leaves some of {of} parts empty: give at least {of}", self.capacity)
                }
                ShareFault::Bounds(fault) => return fault.given_extra(part(self.capacity, index, of)),
            })
        })
    }

    const fn checked_share(self, index: u32, of: NonZeroU32) -> Result<Self, ShareFault> {
        if index >= of.get() {
            return Err(ShareFault::NoPart);
        }
        if self.limit < of.get() as u64 {
            return Err(ShareFault::EmptyLimit);
        }
        let limit = part(self.limit, index, of);
        let share = match self.facts().capacity {
            Capacity::Burst if self.capacity < of.get() as u64 => return Err(ShareFault::EmptyBurst),
            Capacity::Burst => self.with_units(limit, limit).checked_burst(part(self.capacity, index, of)),
            Capacity::Queue => {
                // At least one request starts at once, and never more than the part has room for.
                let at_once = part(self.starting_at_once(), index, of);
                let alone = Self { extra: 0, ..self.with_units(limit, 1) };
                match alone.checked_queue(part(self.capacity - 1, index, of)) {
                    Ok(queue) if at_once > 1 => queue.checked_at_once(at_once),
                    queue => queue,
                }
            }
            Capacity::Limit => Ok(self.with_units(limit, limit)),
        };
        match share {
            Ok(share) => Ok(share),
            Err(fault) => Err(ShareFault::Bounds(fault)),
        }
    }
}

/// Why a quota cannot be divided.
#[derive(Clone, Copy, Debug)]
enum ShareFault {
    NoPart,
    EmptyLimit,
    EmptyBurst,
    Bounds(Fault),
}

/// Returns a part of some units; the first parts have what remains of the division.
const fn part(units: u64, index: u32, of: NonZeroU32) -> u64 {
    let of = of.get() as u64;
    units / of + if (index as u64) < units % of { 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn count(parts: u32) -> NonZeroU32 {
        NonZeroU32::new(parts).expect("not zero")
    }

    /// One of each kind of capacity.
    fn each(limit: u64, more: u64) -> Vec<Quota> {
        vec![
            Quota::fixed_window(limit, HOUR),
            Quota::sliding_window(limit, HOUR),
            Quota::token_bucket(limit, HOUR).burst(limit + more),
            Quota::leaky_bucket(limit, HOUR).queue(more).at_once(more / 2 + 1),
            Quota::concurrency(limit),
        ]
    }

    proptest! {
        #[test]
        fn the_parts_of_regions_and_instances_are_the_quota(
            regions in 1..9_u32,
            instances in 1..9_u32,
            limit in 64..10_000_u64,
            more in 0..500_u64,
        ) {
            for quota in each(limit, more) {
                let (mut limits, mut capacities) = (0, 0);
                for region in 0..regions {
                    for instance in 0..instances {
                        let share = quota.share(region, count(regions)).share(instance, count(instances));
                        limits += share.limit();
                        let is_queue = matches!(quota.facts().capacity, Capacity::Queue);
                        capacities += share.capacity() - u64::from(is_queue);
                        prop_assert!(!is_queue || share.starting_at_once() <= share.capacity());
                        prop_assert_eq!((share.window(), share.algorithm()), (quota.window(), quota.algorithm()));
                    }
                }
                prop_assert_eq!(limits, limit);
                let is_queue = matches!(quota.facts().capacity, Capacity::Queue);
                prop_assert_eq!(capacities, quota.capacity() - u64::from(is_queue));
            }
        }
    }

    #[test]
    fn requests_that_start_at_once_are_divided() {
        let quota = Quota::leaky_bucket(10, HOUR).queue(12).at_once(9);
        let parts = [0, 1, 2, 3].map(|index| quota.share(index, count(4)).starting_at_once());
        assert_eq!(parts, [3, 2, 2, 2]);
        assert_eq!(Quota::leaky_bucket(10, HOUR).queue(12).share(3, count(4)).starting_at_once(), 1);
    }

    #[test]
    fn a_part_that_would_be_empty_or_is_none_is_an_error() {
        let of = |quota: Quota, index, parts| quota.try_share(index, count(parts)).expect_err("no part").to_string();
        let quota = Quota::per_hour(3);
        assert_eq!(of(quota, 3, 3), "there is no part 3 of 3: count from 0, up to 2");
        assert_eq!(
            of(quota, 0, 8),
            "limit 3 leaves some of 8 parts empty: give at least 8, over a longer window if need be"
        );
        assert_eq!(of(Quota::per_hour(10).burst(3), 0, 8), "burst 3 leaves some of 8 parts empty: give at least 8");
        assert!(quota.try_share(2, count(3)).is_ok());
    }

    #[test]
    fn a_burst_that_is_too_large_for_the_limit_of_a_part_is_an_error() {
        let day = Duration::from_secs(366 * 86_400);
        let bucket = Quota::token_bucket(3, day);
        let most = (1..10_000).take_while(|burst| bucket.try_burst(*burst).is_ok()).last().expect("there is one");
        let quota = bucket.burst(most);
        let error = quota.try_share(1, count(2)).expect_err("the limit is a third").to_string();
        assert!(error.starts_with("burst ") && error.contains("is too large: give at most"), "{error}");
    }
}
