//! One server, which has every key: at an address, or the primary that sentinels name.

use std::sync::Arc;

use super::connector::Source;
use super::lane::{Connecting, Server};

/// One server. Whether it is asked is for the layer's breaker to say.
#[derive(Debug)]
pub(super) struct OneServer {
    source: Arc<Source>,
}

impl OneServer {
    pub(super) fn new(source: Source) -> Self {
        Self { source: Arc::new(source) }
    }
}

impl Server for OneServer {
    fn connect(&self) -> Connecting {
        let source = Arc::clone(&self.source);
        Box::pin(async move { source.take().await })
    }
}
