//! Why scripts end.

use mlua::{Lua, Value};

use super::lua::{Raised, Shared, lock};

/// The handler of errors, which runs where they are raised: it keeps why, and the script ends.
pub(super) fn handler(lua: &Lua, shared: &Shared) -> mlua::Result<mlua::Function> {
    let to = Shared::clone(shared);
    lua.create_function(move |_, value: Value| {
        lock(&to).failure = Some(text(&value));
        Ok(())
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::Error(error) => match raised(error) {
            Raised::Reply(text) => text,
            Raised::Error(text) => format!("ERR {text}"),
        },
        Value::Table(table) => table.raw_get("err").unwrap_or_else(|_| "ERR unknown error".to_owned()),
        other => format!("ERR {}", other.to_string().unwrap_or_default()),
    }
}

pub(super) fn raised(error: &mlua::Error) -> Raised {
    match error {
        mlua::Error::CallbackError { cause, .. } => raised(cause),
        other => match other.downcast_ref::<Raised>() {
            Some(raised) => raised.clone(),
            None => Raised::Error(other.to_string()),
        },
    }
}
