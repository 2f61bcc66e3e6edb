use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::overrides::Override;
use tollgate::{Error, Key};

/// An override in the form in which it is stored and sent: for a layer, a policy, a key, or everything.
///
/// ```json
/// { "policy": "plan", "key": "header x-user:ada", "effect": "scale", "factor": 2.0, "until_ms": 1790000000000 }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Entry {
    /// Name of the layer. `None` is all layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Name of the policy. `None` is all policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The key. `None` is all keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The effect.
    pub effect: EffectKind,
    /// Factor of [`EffectKind::Scale`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Share of keys of [`EffectKind::Enforce`], by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Seconds until the override ends, in a request. Stored entries have `until_ms` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
    /// Time at which the override ends, in milliseconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// Effect of an [`Entry`]: see [`Override`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EffectKind {
    /// Requests are not counted.
    Exempt,
    /// Requests are denied.
    Deny,
    /// The quota is multiplied.
    Scale,
    /// The policy does not apply.
    Off,
    /// The policy is in shadow mode.
    Shadow,
    /// The policy is enforced, for all keys or for a share of them.
    Enforce,
}

impl EffectKind {
    /// Returns the name, such as `"exempt"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exempt => "exempt",
            Self::Deny => "deny",
            Self::Scale => "scale",
            Self::Off => "off",
            Self::Shadow => "shadow",
            Self::Enforce => "enforce",
        }
    }
}

impl Entry {
    /// Creates an entry for all layers, policies and keys.
    #[must_use]
    pub fn new(effect: EffectKind) -> Self {
        let (layer, policy, key, factor, share, for_seconds, until_ms) = (None, None, None, None, None, None, None);
        Self { layer, policy, key, effect, factor, share, for_seconds, until_ms }
    }

    /// Turns the seconds of a request into an end.
    pub(crate) fn end_by(&mut self, now_ms: u64) -> Result<(), Error> {
        if let Some(seconds) = self.for_seconds.take() {
            if seconds == 0 || self.until_ms.is_some() {
                return Err(Error::invalid(
                    "an override must last at least 1 s, and has either for_seconds or until_ms",
                ));
            }
            self.until_ms = Some(now_ms.saturating_add(seconds.saturating_mul(1_000)));
        }
        if self.until_ms.is_some_and(|until| until <= now_ms) {
            return Err(Error::invalid("until_ms is over already"));
        }
        Ok(())
    }

    /// Entries of the same kind for the same target have the same ID, and replace each other.
    pub(crate) fn id(&self) -> String {
        let kind = match self.effect {
            EffectKind::Exempt | EffectKind::Deny => "access",
            EffectKind::Scale => "quota",
            EffectKind::Off | EffectKind::Shadow | EffectKind::Enforce => "mode",
        };
        serde_json::json!([kind, self.layer, self.policy, self.key]).to_string()
    }

    pub(crate) fn is_for(&self, layer: &str) -> bool {
        self.layer.as_deref().is_none_or(|name| name == layer)
    }

    /// Fails if a field is missing, or belongs to another effect.
    pub(crate) fn to_override(&self, now_ms: u64) -> Result<Override, Error> {
        let left = self.until_ms.map(|until| Duration::from_millis(until.saturating_sub(now_ms)));
        let bounded =
            || left.ok_or_else(|| Error::invalid(format!("{} needs an end: for_seconds", self.effect.as_str())));
        for (name, is_set, of) in
            [("factor", self.factor.is_some(), EffectKind::Scale), ("share", self.share.is_some(), EffectKind::Enforce)]
        {
            if is_set && self.effect != of {
                return Err(Error::invalid(format!("{name} is for {} only", of.as_str())));
            }
        }
        let one = match self.effect {
            EffectKind::Exempt => Override::exempt(bounded()?),
            EffectKind::Deny => Override::deny(bounded()?),
            EffectKind::Scale => {
                let factor = self.factor.ok_or_else(|| Error::invalid("scale needs a factor"))?;
                Override::scale(factor, bounded()?)?
            }
            EffectKind::Off => Override::off(),
            EffectKind::Shadow => Override::shadow(),
            EffectKind::Enforce => Override::enforce_share(self.share.unwrap_or(1.0))?,
        };
        let one = left.map_or(one.clone(), |left| one.ends_in(left));
        let one = match &self.policy {
            Some(policy) => one.policy(policy)?,
            None => one,
        };
        Ok(match &self.key {
            Some(key) => one.key(key.parse::<Key>()?),
            None => one,
        })
    }
}
