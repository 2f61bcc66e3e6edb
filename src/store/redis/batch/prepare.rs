//! Making a server ready: loading what is called there.

use super::lanes::Lanes;
use crate::Error;
use crate::store::redis::connections::{Patience, failed};
use crate::store::redis::wire::{Calls, Needs, Program};

impl Lanes {
    /// Connects and loads what is called, in one step: the library, or the scripts for each algorithm
    /// alone; those for more are loaded when they are first called.
    pub(in crate::store::redis) async fn prepare(&self, calls: Calls, patience: Patience) -> Result<(), Error> {
        let connection = &mut self.connected(patience).await?;
        let loaded = match calls {
            Calls::Scripts => {
                let programs: Vec<_> = Needs::each().map(|needs| Program::of(calls, needs)).collect();
                Program::load_all(&programs, connection).await
            }
            Calls::Functions => Program::of(calls, Needs::all()).load(connection).await,
        };
        loaded.map_err(|error| failed(&error))
    }
}
