//! Gauges that several layers share.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::Gauge;

/// A gauge that several layers set: it shows the last value, and 0 when a layer is dropped.
#[derive(Debug)]
pub(super) struct Last(pub(super) Gauge);

impl Last {
    pub(super) fn set(&self, value: f64) {
        self.0.set(value);
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.0.set(0.0);
    }
}

/// A gauge to which several layers add. What this one added is subtracted when it is dropped.
#[derive(Debug)]
pub(super) struct Sum {
    gauge: Gauge,
    added: AtomicU64,
}

#[allow(clippy::cast_precision_loss, reason = "there are far fewer breakers and slots")]
impl Sum {
    pub(super) fn new(gauge: Gauge) -> Self {
        Self { gauge, added: AtomicU64::new(0) }
    }

    pub(super) fn add(&self, count: u64) {
        self.added.fetch_add(count, Ordering::Relaxed);
        self.gauge.increment(count as f64);
    }

    pub(super) fn subtract(&self, count: u64) {
        self.added.fetch_sub(count, Ordering::Relaxed);
        self.gauge.decrement(count as f64);
    }
}

impl Drop for Sum {
    fn drop(&mut self) {
        let left = *self.added.get_mut();
        if left > 0 {
            self.subtract(left);
        }
    }
}
