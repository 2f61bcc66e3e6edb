//! Requirements of a policy on a store.
//!
//! Layers and limiters pass one [`Requirement`] for each policy to
//! [`Store::capabilities`](crate::store::Store::capabilities) when the policies are set, so that an unsupported
//! requirement is an error then, and not while requests are served.

use super::{PolicyName, Quota, Settles};

/// The requirements of one policy on the store that decides it.
///
/// # Examples
///
/// A store without reserves:
///
/// ```
/// use tollgate::policy::PolicyName;
/// use tollgate::store::Requirement;
/// use tollgate::{Error, Quota};
///
/// fn supports(requirements: &[Requirement<'_>]) -> Result<(), Error> {
///     match requirements.iter().find(|requirement| requirement.reserves) {
///         Some(Requirement { policy, .. }) => {
///             Err(Error::store(format!("policy {policy} has a reserve"), "remove its `reserve`"))
///         }
///         None => Ok(()),
///     }
/// }
///
/// let (policy, quota) = (PolicyName::try_from("mail")?, Quota::per_hour(100));
/// let requirement = Requirement::new(&policy, &quota);
/// assert!(supports(&[requirement.clone()]).is_ok());
/// assert!(supports(&[requirement.reserves()]).is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Requirement<'a> {
    /// The name of the policy.
    pub policy: &'a PolicyName,
    /// The quota of the policy. A tier may apply another one to some requests.
    pub quota: &'a Quota,
    /// Whether units may be refunded, depending on the outcome of a request.
    pub settles: Settles,
    /// Whether some checks have a [floor](super::Check::floor) above 0.
    pub reserves: bool,
    /// Whether keys may be [banned](super::Ban).
    pub bans: bool,
}

impl<'a> Requirement<'a> {
    /// The requirement of a policy that refunds nothing and has neither a reserve nor a ban.
    pub fn new(policy: &'a PolicyName, quota: &'a Quota) -> Self {
        Self { policy, quota, settles: Settles::AsTaken, reserves: false, bans: false }
    }

    /// Sets whether units may be refunded by the outcome of a request, by default [`Settles::AsTaken`].
    pub fn settles(self, settles: Settles) -> Self {
        Self { settles, ..self }
    }

    /// Requires that checks may have a [floor](super::Check::floor) above 0.
    pub fn reserves(self) -> Self {
        Self { reserves: true, ..self }
    }

    /// Requires that checks may have a [ban](super::Check::ban).
    pub fn bans(self) -> Self {
        Self { bans: true, ..self }
    }
}
