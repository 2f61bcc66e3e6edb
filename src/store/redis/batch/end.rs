//! How a lane ends.

use std::task::Waker;

use super::call;
use super::connection::Connection;
use super::core::Core;
use super::job::Job;
use super::lane::Lane;
use super::line::Line;
use crate::Error;
use crate::core::error::Kind;
use crate::store::redis::connections::Failure;

impl Lane {
    /// Ends the lane, wherever it stands. All who wait receive one error, as it is one failure.
    /// Settlements that were not sent move to another lane; what becomes of those on their way is not
    /// known.
    pub(super) fn close(&self, core: Option<Box<Core>>) {
        let (rest, runners) = self.turns.close();
        self.publish(None);
        let (mut jobs, mut unsent) = (Vec::new(), Vec::new());
        for core in core.into_iter().chain(rest) {
            core.end(self, &mut jobs, &mut unsent);
        }
        runners.into_iter().for_each(Waker::wake);
        let (queued, borrowers) = self.turns.with(|queue| (queue.take_all(), queue.take_borrowers()));
        unsent.extend(queued);
        if let Some(home) = self.home.upgrade() {
            home.adopt(unsent.extract_if(.., |job| job.is_settlement()).collect());
        }
        jobs.append(&mut unsent);
        let error = self.end.get_or_init(stopped);
        call::fail(jobs, error);
        for borrower in borrowers {
            let _ = borrower.answer.send(Err(error.shared()));
        }
    }
}

impl Core {
    /// Gives up its connections, which says nothing of the server. Adds the jobs of calls on their way to
    /// `sent`, and those that were to be asked again to `unsent`.
    fn end(self, lane: &Lane, sent: &mut Vec<Job>, unsent: &mut Vec<Job>) {
        let (current, leave) = match self.line {
            Line::Up(connection, leave) => (Some(*connection), leave),
            Line::Connecting(_, leave, _) => (None, leave),
            Line::Down => (None, None),
        };
        lane.server.learn(leave, Some(&Failure::Unsent));
        for call in self.retired.into_iter().chain(current).flat_map(Connection::into_calls) {
            lane.server.learn(call.permit, Some(&Failure::Unsent));
            sent.extend(call.jobs);
        }
        unsent.extend(self.later.into_iter().flat_map(|(_, jobs)| jobs));
    }
}

#[cold]
pub(in crate::store::redis) fn stopped() -> Error {
    Error::new(Kind::Store, "the call to Redis was stopped: its runtime has ended")
}
