//! What `tollgate::test_util` gives to tests of users.

mod clock;
mod failing;
