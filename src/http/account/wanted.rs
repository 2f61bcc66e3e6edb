//! What is to be owed, while it is not known yet what a charge on its way takes.

/// What is to be owed to one counter, in units.
///
/// A charge on its way may be cut, and what was said since then is about what the cut left: of `n` units at
/// that time it makes `max(n + moved, least)`, as nothing below 0 is ever owed.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    units: u64,
    /// As the charge on its way was sent.
    sent: u64,
    moved: i128,
    least: u64,
    /// It was set since then, so that a cut changes nothing.
    is_set: bool,
}

impl Wanted {
    pub(super) fn new(units: u64) -> Self {
        Self { units, sent: units, moved: 0, least: 0, is_set: false }
    }

    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// The most that was to be owed since a charge was sent.
    pub(super) fn most(&self) -> u64 {
        self.units.max(self.sent)
    }

    /// So many more.
    pub(super) fn add(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
        self.least = self.least.saturating_add(units);
        self.moved += i128::from(units);
    }

    /// So many less, but not below 0.
    pub(super) fn subtract(&mut self, units: u64) {
        self.units = self.units.saturating_sub(units);
        self.least = self.least.saturating_sub(units);
        self.moved -= i128::from(units);
    }

    /// Just so many, whatever becomes of a charge on its way.
    pub(super) fn set(&mut self, units: u64) {
        self.is_set |= units != self.units;
        self.units = units;
    }

    /// A charge is sent that leads to it.
    pub(super) fn send(&mut self) {
        *self = Self::new(self.units);
    }

    /// Of the charge that was sent, so many units were not taken: they are not owed.
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
    fn what_is_said_while_a_charge_is_on_its_way_is_about_what_is_taken_of_it() {
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..10_000 {
            let (before, cut) = (rng.u64(..20), rng.u64(..20));
            let mut wanted = Wanted::new(before);
            wanted.send();
            let mut told = before.saturating_sub(cut);
            for _ in 0..rng.usize(..6) {
                let units = rng.u64(..10);
                if rng.bool() {
                    wanted.add(units);
                    told += units;
                } else {
                    wanted.subtract(units);
                    told = told.saturating_sub(units);
                }
            }
            wanted.cut(cut);
            assert_eq!(wanted.units(), told, "seed {seed}");
        }
    }

    #[test]
    fn what_is_set_while_a_charge_is_on_its_way_stays_as_it_was_set() {
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
