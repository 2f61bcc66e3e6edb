//! Hot keys that are decided in this process: leases, and what is owed until the next one.

mod bounds;
mod definition;
mod demand;
mod histories;
mod overdraft;
mod returns;
mod several;
mod sim;
mod two_processes;
