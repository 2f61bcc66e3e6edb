//! Making a server ready: loading what is called there.

use super::connection::Connections;
use super::needs::Needs;
use super::patience::failed;
use super::script::{Calls, Program};
use crate::Error;

impl Connections {
    /// Connects and loads what is called, in one step: the library, or the scripts for each algorithm
    /// alone; those for more are loaded when they are first called.
    pub(super) async fn prepare(&self, calls: Calls) -> Result<(), Error> {
        let connection = &mut self.get().await?.connection;
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
