use std::any::Any;
use std::sync::Arc;

use super::KeyExtractor;
use super::client_ip::ClientIp;
use super::extractor::Joined;
#[cfg(feature = "lookup")]
use super::lookup::KeyLookup;
use crate::core::Error;

/// Fills the settings that an address key leaves open from the layer's client. Fails if the key and the client
/// contradict each other.
pub(crate) fn bound(key: &Arc<dyn KeyExtractor>, layer: &ClientIp) -> Result<Arc<dyn KeyExtractor>, Error> {
    let any: &dyn Any = &**key;
    if let Some(client) = any.downcast_ref::<ClientIp>() {
        return Ok(Arc::new(client.bound(layer)?));
    }
    if let Some(Joined { parts }) = any.downcast_ref() {
        let parts = parts.iter().map(|part| bound(part, layer)).collect::<Result<_, _>>()?;
        return Ok(Arc::new(Joined { parts }));
    }
    #[cfg(feature = "lookup")]
    if let Some(lookup) = any.downcast_ref::<KeyLookup>() {
        let mut lookup = lookup.clone();
        lookup.by = bound(&lookup.by, layer)?;
        return Ok(Arc::new(lookup));
    }
    Ok(Arc::clone(key))
}
