//! One server, which has every key: at an address, or the primary that sentinels name.

use std::sync::Arc;

use super::server::{Connecting, Server};
use crate::store::redis::connections::Source;

/// One server. Whether it is asked is for the layer's breaker to say.
#[derive(Debug)]
pub(in crate::store::redis) struct OneServer {
    source: Arc<Source>,
}

impl OneServer {
    pub(in crate::store::redis) fn new(source: Source) -> Self {
        Self { source: Arc::new(source) }
    }
}

impl Server for OneServer {
    fn connect(&self) -> Connecting {
        let source = Arc::clone(&self.source);
        Box::pin(async move { source.take().await })
    }
}
