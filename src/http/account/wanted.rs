//! The units to be taken from one counter, while the result of a charge is pending.
//!
//! A store may cut a charge that would exceed its bound. Charges and refunds that came while it was in flight then
//! count from what was really taken, so a number is not enough: it takes the changes since, and how far they went
//! down to 0.

/// The units of a request to be taken from one counter, in units.
///
/// If a cut leaves `n` units of what was sent, `max(n + moved, least)` are wanted, as if each later charge and
/// refund had been made after the cut, and none had gone below 0.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    units: u64,
    /// The units that were wanted when the charge in flight was sent.
    sent: u64,
    /// The sum of charges, less refunds, since then.
    moved: i128,
    /// The units that later charges leave even if refunds had gone down to 0.
    least: u64,
    /// Whether the units were set since then, so that a cut changes nothing.
    is_set: bool,
}

impl Wanted {
    /// Creates it with no charge in flight.
    pub(super) fn new(units: u64) -> Self {
        Self { units, sent: units, moved: 0, least: 0, is_set: false }
    }

    /// Returns the units, as if a charge in flight were taken in full.
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// Returns the most units that may be wanted while a charge is in flight.
    pub(super) fn most(&self) -> u64 {
        self.units.max(self.sent)
    }

    /// Adds units.
    pub(super) fn add(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
        self.least = self.least.saturating_add(units);
        self.moved += i128::from(units);
    }

    /// Subtracts units, down to 0.
    pub(super) fn subtract(&mut self, units: u64) {
        self.units = self.units.saturating_sub(units);
        self.least = self.least.saturating_sub(units);
        self.moved -= i128::from(units);
    }

    /// Sets the units, whatever a charge in flight takes.
    pub(super) fn set(&mut self, units: u64) {
        self.is_set |= units != self.units;
        self.units = units;
    }

    /// Notes that a charge was sent that leads to these units.
    pub(super) fn send(&mut self) {
        *self = Self::new(self.units);
    }

    /// Notes that the store did not take `units` of the charge that was sent: they are not wanted any more.
    pub(super) fn cut(&mut self, units: u64) {
        if !self.is_set {
            let moved = i128::from(self.sent.saturating_sub(units)) + self.moved;
            self.units = u64::try_from(moved.max(0)).unwrap_or(u64::MAX).max(self.least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_and_refunds_during_a_charge_in_flight_count_from_what_it_took() {
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..10_000 {
            let (before, cut) = (rng.u64(..20), rng.u64(..20));
            let mut wanted = Wanted::new(before);
            wanted.send();
            let mut expected = before.saturating_sub(cut);
            for _ in 0..rng.usize(..6) {
                let units = rng.u64(..10);
                if rng.bool() {
                    wanted.add(units);
                    expected += units;
                } else {
                    wanted.subtract(units);
                    expected = expected.saturating_sub(units);
                }
            }
            wanted.cut(cut);
            assert_eq!(wanted.units(), expected, "seed {seed}");
        }
    }

    #[test]
    fn units_that_are_set_during_a_charge_in_flight_stay_as_they_were_set() {
        let mut wanted = Wanted::new(50);
        wanted.send();
        wanted.set(5);
        wanted.cut(40);
        assert_eq!(wanted.units(), 5);
    }

    #[test]
    fn nothing_overflows() {
        let mut wanted = Wanted::new(u64::MAX);
        wanted.send();
        wanted.add(u64::MAX);
        wanted.cut(1);
        assert_eq!(wanted.units(), u64::MAX);
        wanted.subtract(u64::MAX);
        assert_eq!(wanted.units(), 0);
    }
}
