//! Stores that decide hot keys in this process: leases, and debts that are paid later.

mod bounds;
mod callers;
mod debts;
mod definition;
mod demand;
mod overdraft;
mod returns;
mod settled;
mod several;
mod sim;
mod two_processes;
