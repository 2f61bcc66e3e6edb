//! Requests on the threads of a runtime: as many are admitted as fit.
//!
//! While a store takes units in advance, they are neither in the counter nor with those who may spend them yet: requests
//! on other threads may be refused then. So what is left is taken one by one afterwards, and the sum is compared; a
//! store that takes nothing in advance leaves nothing.

use tokio::runtime::Handle;

use super::case::Case;
use super::rows::{S, us};
use super::subject::{Admitted, Checked, Subject};
use crate::core::Quota;

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![requests_in_tasks_of_their_own_take_as_much_as_there_is];

const TASKS: u64 = 16;
const EACH: u64 = 100;
const LIMIT: u64 = 500;

/// Without a runtime there are no tasks to compare.
async fn requests_in_tasks_of_their_own_take_as_much_as_there_is(on: &Subject) -> Checked {
    on.at(0)?;
    let quotas = [Quota::token_bucket(LIMIT, us(36_000 * S)), Quota::fixed_window(LIMIT, us(36_000 * S))];
    for quota in quotas.into_iter().filter(|_| Handle::try_current().is_ok()) {
        on.next_key();
        on.remaining(0, quota, LIMIT).await?;
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(on.caller(on.check(quota, 1)).take(EACH))).collect();
        let mut among = Admitted::default();
        for task in tasks {
            among += on.joined(task.await)?;
        }
        let later = on.joined(Ok(on.caller(on.check(quota, 1)).take(LIMIT).await))?;
        let (mut all, calls) = (among, TASKS * EACH);
        all += later;
        on.equal(all.requests, LIMIT, || format!("admitted of {calls} in {TASKS} tasks and {LIMIT} later by {quota}"));
        on.holds(later.requests == 0 || all.leased > 0, || {
            format!("{} more of {quota} are admitted after {calls} requests in {TASKS} tasks", later.requests)
        });
        on.remaining(0, quota, 0).await?;
    }
    Ok(())
}
