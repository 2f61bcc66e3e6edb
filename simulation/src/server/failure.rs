//! Why scripts end.

use mlua::{Debug, Lua, Value};

use super::lua::{Failure, Raised, Shared, lock};

/// The handler of errors, which runs where they are raised: it keeps why and where, and the script ends.
pub(super) fn handler(lua: &Lua, shared: &Shared) -> mlua::Result<mlua::Function> {
    let to = Shared::clone(shared);
    lua.create_function(move |lua, value: Value| {
        lock(&to).failure = Some(failure(lua, &value));
        Ok(())
    })
}

fn failure(lua: &Lua, value: &Value) -> Failure {
    let level = level(lua);
    let place = level.and_then(|level| place(lua, level));
    let at = || place.as_ref().map(|(chunk, line)| format!("{}:{line}: ", chunk.trim_start_matches('@')));
    let text = match text(value) {
        Raised::Reply(text) => text,
        Raised::Error(text) => format!("ERR {}{text}", at().unwrap_or_default()),
        Raised::Argument(number, text) => {
            let name = level.and_then(|level| name(lua, level - 1)).unwrap_or_else(|| "?".to_owned());
            format!("ERR {}bad argument #{number} to '{name}' ({text})", at().unwrap_or_default())
        }
    };
    Failure { text, place }
}

/// How deep the nearest function of a script is in the stack: what raised an error is before it.
fn level(lua: &Lua) -> Option<usize> {
    let of_script = |frame: &Debug<'_>| frame.source().source.is_some_and(|source| source.starts_with('@'));
    (1..)
        .map_while(|level| Some((level, lua.inspect_stack(level, of_script)?)))
        .find_map(|(level, is)| is.then_some(level))
}

fn place(lua: &Lua, level: usize) -> Option<(String, usize)> {
    lua.inspect_stack(level, |frame| Some((frame.source().source?.into_owned(), frame.current_line()?))).flatten()
}

fn name(lua: &Lua, level: usize) -> Option<String> {
    lua.inspect_stack(level, |frame| frame.names().name.map(std::borrow::Cow::into_owned)).flatten()
}

fn text(value: &Value) -> Raised {
    match value {
        Value::Error(error) => raised(error),
        Value::Table(table) => match table.raw_get::<String>("err") {
            Ok(text) => Raised::Reply(text),
            Err(_) => Raised::Reply("ERR unknown error".to_owned()),
        },
        other => Raised::Reply(format!("ERR {}", other.to_string().unwrap_or_default())),
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

/// An error that a script caught is a text there.
pub(super) fn caught(lua: &Lua, value: Value) -> mlua::Result<Value> {
    match &value {
        Value::Error(error) => lua.create_string(raised(error).to_string()).map(Value::String),
        Value::Table(table) => Ok(match table.raw_get("err")? {
            text @ Value::String(_) => text,
            _ => value,
        }),
        _ => Ok(value),
    }
}
