//! Limits asked from code, and the service that tells clients what they have left.

#[allow(dead_code, reason = "shared with other tests")]
mod support {
    pub(crate) mod clock;
    #[cfg(feature = "axum")]
    pub(crate) mod log;
}

#[path = "limits/asked.rs"]
mod asked;
#[path = "limits/shown.rs"]
mod shown;
#[path = "limits/status.rs"]
mod status;
#[path = "limits/waiting.rs"]
mod waiting;
