//! What was really taken, as the scripts that ran show it.
