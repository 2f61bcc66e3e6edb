//! Stores that decide hot keys in this process: leases, and debts that are paid later.

#[path = "../support/checks.rs"]
mod checks;
#[path = "../support/clock.rs"]
mod clock;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../support/server.rs"]
mod server;
#[path = "../support/slow.rs"]
mod slow;

mod bounds;
mod callers;
mod debts;
mod definition;
mod demand;
mod returns;
mod settled;
mod several;
mod sim;
mod two_processes;
